"""Schemas and their values: a client of schema registries, and one package per format.

`formats.py` has the table of formats and `interface.py` their interface; the registry, the
command line and Spark use both. `client.py` is the client. The libraries of a format are imported
when they are first needed: the registry never imports Arrow or Spark.
"""
