"""A small synchronous client of any Kafka cluster, based on `headrace.wire`.

It is for the pipelines, which process whole record batches, for connections between brokers, and
for all requests of the command line except records. Applications should use one of the usual
clients.
"""
