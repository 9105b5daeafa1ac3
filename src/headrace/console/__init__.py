"""The web console: an ordinary client of a Kafka cluster, a schema registry and Spark queries.

The browser's half is in `web/`; Vite builds it into `console/assets`. The package imports nothing
of the broker, so that the console shows any Kafka cluster.
"""
