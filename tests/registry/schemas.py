"""Schemas that several tests use."""

import json
from collections.abc import Mapping


def user(*fields: Mapping[str, object], name: str = "User") -> str:
    """An Avro record with a name and whatever else."""
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "namespace": "shop",
            "fields": [{"name": "name", "type": "string"}, *fields],
        }
    )


AGE = {"name": "age", "type": "int"}
AGE_WITH_DEFAULT = {"name": "age", "type": "int", "default": 0}
