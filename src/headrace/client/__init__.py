"""A small synchronous client of any Kafka cluster, in terms of `headrace.wire`.

For the pipelines, which want whole record batches and not single records. Applications have better
clients; the command line uses librdkafka.
"""
