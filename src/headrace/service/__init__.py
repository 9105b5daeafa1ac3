"""The chassis of HTTP services: everything of a service except its own routes and state.

A service describes itself with an `HttpService`; `application.py` serves it over ASGI and
`server.py` runs it as a process. The registry is the first user. The package imports nothing of
the broker.
"""
