"""Functions of the command line and the console: views, plans and changes of a cluster.

An ordinary Kafka client above `client/` and `schemas/`. It prints nothing and asks no questions.
Functions take a `Cluster` (which is not for several threads) and return frozen dataclasses.
"""
