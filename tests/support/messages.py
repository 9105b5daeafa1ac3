"""Requests of any version, made of the fields that a test cares about."""

from headrace.wire import codec, codec_fields


def part(api: int, version: int, field: str, /, **values: object) -> object:
    """One item of a list in a request."""
    return item(codec.request_class(api, version), field, **values)


def item(of: type, field: str, /, **values: object) -> object:
    """One item of a list in a message."""
    entity = next(known.entity for known in codec_fields.fields(of) if known.name == field)
    assert entity is not None
    return filled(entity, values)


def filled(of: type, values: dict[str, object]) -> object:
    """A message with these fields, and the defaults of the others."""
    fields = codec_fields.fields(of)
    unknown = values.keys() - {field.name for field in fields}
    assert not unknown, f"{of.__module__} has no {unknown}"
    return of(**{field.name: values.get(field.name, field.default) for field in fields})


_ABOUT_ORDERS: dict[str, object] = {
    "name": "orders",
    "topic": "orders",
    "topic_names": ("orders",),
    "resource_type": 2,
    "resource_name": "orders",
    "feature": "metadata.version",
    "transactional_id": "copier",
    "group_id": "readers",
    "producer_id": -1,
    "producer_epoch": -1,
    "partitions": (0,),
    "partition_indexes": (0,),
    "acks": 1,
}


def about_orders(of: type) -> object:
    """A request with one item in every list, about the topic `orders`."""
    values: dict[str, object] = {}
    for field in codec_fields.fields(of):
        if field.entity is not None:
            value: object = about_orders(field.entity)
            values[field.name] = (value,) if field.array else None if field.nullable else value
        elif field.name in _ABOUT_ORDERS:
            values[field.name] = _ABOUT_ORDERS[field.name]
        elif field.array:
            values[field.name] = ()
        else:
            values[field.name] = field.default
    if "topic_id" in values and "name" in values:
        values["topic_id"] = None
    return of(**values)
