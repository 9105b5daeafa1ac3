"""Handlers of Kafka's APIs: one module per API or small family. `routes.py` is the route table."""
