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
