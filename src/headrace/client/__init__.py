"""A small synchronous client of any Kafka cluster, in terms of `headrace.wire`.

For the pipelines, which want whole record batches and not single records, for brokers among each
other, and for everything that the command line asks but records. Applications have better clients.
"""
