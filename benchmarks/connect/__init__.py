"""Connect beside Kafka Connect, with the same configurations on one broker."""
