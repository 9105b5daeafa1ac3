"""The canonical text of an Avro schema: what Java's `Schema.toString()` prints.

Registries compare schemas by this text, which Java generates in all of them. Attributes that Avro
reserves are written only if they have a meaning: `{"type":"int","name":"x"}` is `"int"`. All other
attributes are properties of the user and keep their order. The schema is already validated; nothing
is checked here.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring

from headrace.schemas.avro.comparison import NAMED, PRIMITIVES

TYPES = PRIMITIVES | NAMED | {"array", "map"}
# Names that cannot be properties of a schema. An enum has a default; for every other type "default"
# and "order" are ordinary properties.
RESERVED = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
ENUM_RESERVED = RESERVED | {"default"}
FIELD_RESERVED = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
# Python prints the same as Java except for doubles and for the letters in escapes. Its encoder is
# several times faster than `_write`, which therefore sees only texts that may have one of these.
_MAY_DIFFER = re.compile(r"\\u|\d\.\d|\de[-+]\d|NaN|Infinity")
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def canonical_text(schema: object, *, normalize: bool = False) -> str:
    """The schema's text. If normalized, parts whose order has no meaning are sorted."""
    arranged = _schema(schema, "", normalize)
    text = _ENCODER.encode(arranged)
    if not _MAY_DIFFER.search(text):
        return text
    parts: list[str] = []
    _write(arranged, parts)
    return "".join(parts)


def respelled(schema: object) -> object:
    """The schema as Java's parser reads it, if Java is more permissive than the Python library.

    Java accepts `{"type": "Name"}` for the type of that name, and any case in a field's `order`.
    """
    if isinstance(schema, list):
        return [respelled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for part in ("items", "values"):
        if part in made:
            made[part] = respelled(made[part])
    if isinstance(fields := made.get("fields"), list):
        made["fields"] = [_respelled_field(each) for each in fields]
    kind = made.get("type")
    is_reference = isinstance(kind, str) and kind not in TYPES
    return kind if is_reference else made


def _respelled_field(field: object) -> object:
    if not isinstance(field, dict):
        return field
    made = dict(field)
    if "type" in made:
        made["type"] = respelled(made["type"])
    if isinstance(order := made.get("order"), str):
        made["order"] = order.lower()
    return made


def _schema(data: object, space: str, normalize: bool) -> object:
    """The schema with its attributes in Java's order, inside the namespace `space`."""
    if isinstance(data, str):
        return data if data in PRIMITIVES else _short(_full(data, space), space)
    if isinstance(data, list):
        return [_schema(each, space, normalize) for each in data]
    assert isinstance(data, dict), "the library has accepted the schema"
    kind = data["type"]
    if isinstance(kind, dict | list):
        return _schema(kind, space, normalize)
    if kind in NAMED:
        return _named(data, str(kind), space, normalize)
    properties = _properties(data, RESERVED, normalize)
    if kind == "array":
        return {"type": kind, "items": _schema(data["items"], space, normalize), **properties}
    if kind == "map":
        return {"type": kind, "values": _schema(data["values"], space, normalize), **properties}
    return {"type": kind, **properties} if properties else kind


def _named(data: Mapping[str, object], kind: str, space: str, normalize: bool) -> dict[str, object]:
    own = data.get("namespace")
    full = _full(str(data["name"]), own if isinstance(own, str) else space)
    inner, _, name = full.rpartition(".")
    made: dict[str, object] = {"type": kind, "name": name}
    if inner != space:
        made["namespace"] = inner
    doc = data.get("doc")
    if isinstance(doc, str) and (doc or not normalize):
        made["doc"] = doc
    reserved = RESERVED
    if kind == "enum":
        made["symbols"] = data["symbols"]
        reserved = ENUM_RESERVED
        if isinstance(data.get("default"), str):
            made["default"] = data["default"]
    elif kind == "fixed":
        made["size"] = data["size"]
    else:
        fields = data["fields"]
        assert isinstance(fields, list), "the library has accepted the record"
        made["fields"] = [_field(each, inner, normalize) for each in fields]
    made.update(_properties(data, reserved, normalize))
    if aliases := _aliases(data, normalize):
        made["aliases"] = [_short(_full(alias, inner), inner) for alias in aliases]
    return made


def _field(data: Mapping[str, object], space: str, normalize: bool) -> dict[str, object]:
    made: dict[str, object] = {
        "name": data["name"],
        "type": _schema(data["type"], space, normalize),
    }
    if isinstance(doc := data.get("doc"), str):
        made["doc"] = doc
    if "default" in data:
        made["default"] = default = data["default"]
        if isinstance(default, str):
            made["default"] = _default(default, made["type"])
    if data.get("order", "ascending") != "ascending":
        made["order"] = data["order"]
    if "aliases" in data and (aliases := _aliases(data, normalize)):
        made["aliases"] = aliases
    if not data.keys() <= FIELD_RESERVED:
        made.update(_properties(data, FIELD_RESERVED, normalize))
    return made


def _default(text: str, kind: object) -> str | float:
    """The default; Java reads the text "1.5" of a float or double field as a number."""
    if isinstance(kind, dict):
        kind = kind["type"]
    return float(text) if kind in ("float", "double") and _NUMBER.fullmatch(text) else text


def _aliases(data: Mapping[str, object], normalize: bool) -> list[str]:
    found = data.get("aliases")
    texts = [str(each) for each in found] if isinstance(found, list) else []
    return sorted(texts) if normalize else texts


def _properties(
    data: Mapping[str, object], reserved: frozenset[str], normalize: bool
) -> dict[str, object]:
    names = [name for name in data if name not in reserved]
    return {name: data[name] for name in (sorted(names) if normalize else names)}


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _short(full: str, space: str) -> str:
    return full.removeprefix(f"{space}.") if full.rpartition(".")[0] == space else full


def _write(value: object, parts: list[str]) -> None:
    """JSON as Jackson prints it: without spaces, and with Java's spelling of doubles."""
    if isinstance(value, str):
        parts.append(_quoted(value))
    elif isinstance(value, dict):
        before = "{"
        for name, inner in value.items():
            parts.append(f"{before}{_quoted(name)}:")
            _write(inner, parts)
            before = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        before = "["
        for inner in value:
            parts.append(before)
            _write(inner, parts)
            before = ","
        parts.append("]" if value else "[]")
    else:
        parts.append(_java_double(value) if isinstance(value, float) else json.dumps(value))


def _quoted(text: str) -> str:
    quoted: str = encode_basestring(text)
    if "\\u" in quoted:
        return _ESCAPE.sub(lambda found: _upper(found[0]), quoted)
    return quoted


def _upper(escape: str) -> str:
    return f"\\u{escape[2:].upper()}" if escape.startswith("\\u") else escape


def _java_double(value: float) -> str:
    """As `Double.toString`: 1.0E10 from ten million on, and below a thousandth."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"
