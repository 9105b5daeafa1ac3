"""The connectors that come with Headrace; `headrace.connect.plugins` lists them.

The modules of the connectors import Arrow and the drivers of databases where they use them, so
that listing the connectors stays cheap.
"""
