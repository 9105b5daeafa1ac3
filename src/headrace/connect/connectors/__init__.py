"""The connectors that come with Headrace, each found by its entry point in pyproject.toml.

The modules of the connectors import Arrow and the drivers of databases where they use them, so
that listing the connectors stays cheap.
"""
