"""The process: sockets, dispatch, background work, and the server."""
