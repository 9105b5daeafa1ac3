"""The Spark driver that hosts the queries of a service, and its supervision by the service.

`driver_process.py`, `retries.py` and `supervised_driver.py` belong to the service and import no
PySpark; everything else runs in the driver.
"""
