"""What the command line and the console both decide: views, plans and changes of a cluster.

An ordinary Kafka client above `client/` and `schemas/`. Nothing here prints or asks. Functions take
a `Cluster` (which is not for several threads) and return frozen dataclasses.
"""
