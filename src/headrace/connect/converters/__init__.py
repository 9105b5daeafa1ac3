"""Converters: bytes of records to typed columns and back, with the class names of Kafka Connect.

`options` has the names and options and needs no Spark. `reading` converts the records of a sink
connector, `writing` those of a source connector; both build Spark expressions.
"""

from headrace.connect.converters.options import check, class_types, options_of

__all__ = ["check", "class_types", "options_of"]
