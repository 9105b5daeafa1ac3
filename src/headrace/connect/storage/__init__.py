"""The internal topics of Connect, in Kafka Connect's own format: configs, offsets and status."""
