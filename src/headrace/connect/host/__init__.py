"""The Spark side of Connect: a driver process with the queries of connectors, and its supervisor.

`spark_host.py` and `driver_process.py` belong to the service and import no PySpark; everything
else runs in the driver and its workers.
"""
