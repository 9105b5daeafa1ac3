"""The command line: an ordinary Kafka client, so it also works against Apache Kafka."""
