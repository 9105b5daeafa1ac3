"""Connectors for RabbitMQ (AMQP 0-9-1): a source of queues, and a sink into an exchange."""
