"""Connect: connectors as Spark streaming queries, behind the REST interface of Kafka Connect.

The names below are the interface for connectors of one's own.
"""

from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    Password,
    PermanentError,
    PushSource,
    Received,
    RecordError,
    Sink,
    SinkTask,
    Source,
    SourceStream,
)

__all__ = [
    "REQUIRED",
    "Option",
    "OptionError",
    "Password",
    "PermanentError",
    "PushSource",
    "Received",
    "RecordError",
    "Sink",
    "SinkTask",
    "Source",
    "SourceStream",
]
