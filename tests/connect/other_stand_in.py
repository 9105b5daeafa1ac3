"""A connector with the name of another one."""

from headrace.connect import Sink


class FileStreamSinkConnector(Sink):
    """Writes nothing."""
