"""The Spark side of Connect: a driver process with the queries of connectors, and its supervisor.

`spark_host.py` belongs to the service and imports no PySpark; everything else runs in the driver
and its workers.
"""
