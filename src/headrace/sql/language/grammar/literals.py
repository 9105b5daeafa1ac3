"""Values of INSERT INTO ... VALUES: expressions without columns, as Python values."""

import operator
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, DecimalException

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.grammar.select_parsing import place_of


def value_of(node: exp.Expr) -> object:
    """None, bool, int, float, Decimal, str, bytes, date, time, datetime, list or dict."""
    try:
        return _value(node)
    except (ArithmeticError, DecimalException, TypeError, ValueError) as error:
        shown = sql_of(node)
        raise SqlError(f"{shown} cannot be computed: {error}.", *place_of(node)) from None


def _value(node: exp.Expr) -> object:
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return str(node.this) if node.is_string else _number(str(node.this))
        case exp.Paren():
            return _value(node.this)
        case exp.Neg():
            return _computed(operator.neg, _value(node.this))
        case exp.DPipe():
            parts = [_value(node.this), _value(node.expression)]
            return None if None in parts else "".join(map(_as_text, parts))
        case exp.Array():
            return [_value(each) for each in node.expressions]
        case exp.Cast():
            return cast_to(_value(node.this), sql_of(node.to).lower())
        case exp.Anonymous():
            return _call(node)
        case exp.Column():
            raise SqlError(
                f"{sql_of(node)} is a name; values are literals and expressions of literals."
                " Strings are in single quotes.",
                *place_of(node),
            )
    if isinstance(node, exp.Binary) and type(node) in _ARITHMETIC:
        return _computed(_ARITHMETIC[type(node)], _value(node.this), _value(node.expression))
    raise SqlError(
        f"{sql_of(node)} is not possible in VALUES: it takes literals, arithmetic, ||, CAST,"
        " ARRAY[...], MAP(k := v) and STRUCT(name := v).",
        *place_of(node),
    )


def _number(text: str) -> int | float | Decimal:
    if text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _computed(function: Callable[..., object], *values: object) -> object:
    if None in values:
        return None
    if any(isinstance(each, bool) or not isinstance(each, _NUMBERS) for each in values):
        raise TypeError("it needs numbers")
    if any(isinstance(each, float) for each in values):
        values = tuple(float(each) for each in values if isinstance(each, _NUMBERS))
    return function(*values)


def _divided(left: int | float | Decimal, right: int | float | Decimal) -> object:
    """Of whole numbers the quotient is one too, towards zero, as in ksqlDB."""
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return operator.truediv(left, right)


_NUMBERS = (int, float, Decimal)
_ARITHMETIC: Mapping[type[exp.Expr], Callable[..., object]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: _divided,
}


def _call(node: exp.Anonymous) -> object:
    name, arguments = str(node.name).upper(), node.expressions
    if name == "STRUCT" and all(isinstance(each, exp.PropertyEQ) for each in arguments):
        return {each.name: _value(each.expression) for each in arguments}
    if name == "MAP" and all(isinstance(each, exp.PropertyEQ) for each in arguments):
        return {_as_text(_value(each.this)): _value(each.expression) for each in arguments}
    function = _FUNCTIONS.get(name)
    if function is None:
        raise SqlError(
            f"The function {node.name} is not possible in VALUES; these are: ARRAY[...],"
            f" {', '.join(['MAP', 'STRUCT', 'CAST', *_FUNCTIONS])}.",
            *place_of(node),
        )
    values = [_value(each) for each in arguments]
    return None if None in values and name != "CONCAT" else function(*values)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def to_bytes(text: object, encoding: object) -> bytes:
    """The bytes that a text stands for, with ksqlDB's names of encodings."""
    match str(encoding).lower():
        case "hex":
            return unhexlify(str(text).removeprefix("0x"))
        case "base64":
            return b64decode(str(text), validate=True)
        case "utf8" | "utf-8":
            return str(text).encode()
        case "ascii":
            return str(text).encode("ascii")
    raise ValueError(f"the encoding {encoding} is none of hex, utf8, ascii and base64")


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "ABS": lambda value: _computed(abs, value),
    "CONCAT": lambda *parts: "".join(_as_text(part) for part in parts if part is not None),
    "LCASE": lambda text: _as_text(text).lower(),
    "UCASE": lambda text: _as_text(text).upper(),
    "TRIM": lambda text: _as_text(text).strip(),
    "TO_BYTES": to_bytes,
}


def cast_to(value: object, type_name: str) -> object:
    """A value as CAST gives it, for Spark's types without parts."""
    if value is None:
        return None
    match type_name.partition("(")[0]:
        case "string":
            return _as_text(value)
        case "boolean":
            return value if isinstance(value, bool) else _as_text(value).lower() == "true"
        case "tinyint" | "smallint" | "int" | "bigint":
            return int(Decimal(_as_text(value)))
        case "float" | "double":
            return float(_as_text(value))
        case "decimal":
            return _decimal(value, type_name)
        case "date":
            return _moment(value).date()
        case "time":
            return time.fromisoformat(_as_text(value))
        case "timestamp" | "timestamp_ntz":
            return _moment(value)
        case "binary":
            return value if isinstance(value, bytes) else _as_text(value).encode()
    raise TypeError(f"CAST to {type_name} is not possible in VALUES")


def _decimal(value: object, type_name: str) -> Decimal:
    digits = type_name.partition("(")[2].rstrip(")").split(",")
    scale = int(digits[1]) if len(digits) == 2 else 0
    return Decimal(_as_text(value)).quantize(Decimal(1).scaleb(-scale))


def _moment(value: object) -> datetime:
    """A point in time; without a zone it is in UTC."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, int) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1_000, UTC)
    found = datetime.fromisoformat(_as_text(value))
    return found if found.tzinfo else found.replace(tzinfo=UTC)
