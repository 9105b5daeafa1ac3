"""Transforms and predicates, with the class names and options of Kafka Connect.

`options` has the names and options and needs no Spark. `applying` applies the chain of a
configuration to a DataFrame of records, as Spark expressions.
"""

from headrace.connect.transforms.options import check, class_types, options_of

__all__ = ["check", "class_types", "options_of"]
