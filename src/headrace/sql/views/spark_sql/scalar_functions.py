"""Spark's functions of one row that views have, by their names in lower case.

A function takes typed arguments and returns its translation; NotAnswerable for types of arguments
that Spark would convert or refuse.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from headrace.sql.records.types import ColumnType
from headrace.sql.views.spark_sql.casts import cast
from headrace.sql.views.spark_sql.operators import arithmetic, comparison, condition
from headrace.sql.views.spark_sql.typed import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    NotAnswerable,
    Typed,
    bounded,
    common_type,
    is_integer,
    is_numeric,
    number_sql,
)

Function: TypeAlias = Callable[[Sequence[Typed]], Typed]

_DAY = 86_400_000_000


class _Signature:
    """Takes arguments of these types, the last ones of which may be missing, and calls a function
    of SQLite."""

    def __init__(
        self,
        name: str,
        result: ColumnType | None,
        *kinds: str,
        defaults: Sequence[str] = (),
        more: str = "",
        is_stored: bool = False,
    ) -> None:
        self._name = name
        self._result = result
        self._kinds = kinds
        self._defaults = defaults
        self._more = more
        self._is_stored = is_stored

    def __call__(self, arguments: Sequence[Typed]) -> Typed:
        missing = len(self._kinds) - len(arguments)
        if not 0 <= missing <= len(self._defaults):
            raise NotAnswerable(f"{len(arguments)} arguments")
        texts = [
            _as(kind, argument) for kind, argument in zip(self._kinds, arguments, strict=False)
        ]
        texts += self._defaults[len(self._defaults) - missing :] if missing else ()
        result = self._result or arguments[0].kind
        sql = f"{self._name}({', '.join(texts)}{self._more})"
        return Typed(sql, result, is_stored=self._is_stored)


def _as(kind: str, argument: Typed) -> str:
    """The text of an argument of a class of types."""
    given = argument.kind
    if given == VOID:
        return "NULL"
    if (kind == "string" and given == STRING) or (kind == "binary" and given == BINARY):
        return argument.sql
    if kind == "text" and not given.is_nested and given.kind != "variant":
        # Functions of strings take all simple types.
        return cast(argument, STRING).sql
    if kind == "octets" and given in (STRING, BINARY):
        return argument.sql
    if kind == "int" and is_integer(given):
        return argument.sql
    if kind == "double" and is_numeric(given):
        return number_sql(cast(argument, DOUBLE) if given.kind == "decimal" else argument)
    if kind == "date" and given.kind in ("date", "timestamp"):
        return cast(argument, DATE).sql
    if kind == "timestamp" and given.kind in ("date", "timestamp", "timestamp_ntz"):
        return argument.sql if given.kind != "date" else cast(argument, TIMESTAMP).sql
    if kind in ("date", "timestamp") and given == STRING:
        return cast(argument, DATE if kind == "date" else TIMESTAMP).sql
    if kind in (given.kind, "any"):
        return argument.sql
    raise NotAnswerable(f"an argument is {given}, and a view takes {kind}")


# ------------------------------------------------------------------------------------ conditions


def _coalesce(arguments: Sequence[Typed]) -> Typed:
    kind = common_type(list(arguments), "coalesce")
    texts = [cast(each, kind).sql for each in arguments]
    if len(texts) == 1:
        return Typed(texts[0], kind)
    return Typed(f"coalesce({', '.join(texts)})", kind, is_stored=True)


def _nvl2(arguments: Sequence[Typed]) -> Typed:
    tested, there, missing = _exactly(arguments, 3)
    return choice([(f"{tested.sql} IS NOT NULL", there)], missing)


def _if(arguments: Sequence[Typed]) -> Typed:
    tested, yes, no = _exactly(arguments, 3)
    return choice([(condition(tested), yes)], no)


def choice(branches: Sequence[tuple[str, Typed]], default: Typed | None) -> Typed:
    """CASE with conditions."""
    results = [result for _, result in branches] + ([] if default is None else [default])
    kind = common_type(results, "CASE")
    parts = [f"WHEN {tested} THEN {cast(result, kind).sql}" for tested, result in branches]
    otherwise = "" if default is None else f" ELSE {cast(default, kind).sql}"
    return Typed(f"(CASE {' '.join(parts)}{otherwise} END)", kind, is_stored=True)


def _nullif(arguments: Sequence[Typed]) -> Typed:
    value, other = _exactly(arguments, 2)
    equal = comparison("=", value, other).sql
    return Typed(f"(CASE WHEN {equal} THEN NULL ELSE {value.sql} END)", value.kind, is_stored=True)


def _is_null(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    return Typed(f"({value.sql} IS NULL)", BOOLEAN)


def _is_not_null(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    return Typed(f"({value.sql} IS NOT NULL)", BOOLEAN)


def _is_nan(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    if value.kind.kind not in ("double", "float"):
        raise NotAnswerable("isnan of another type than double")
    return Typed(f"coalesce({value.sql} = 'NaN', 0)", BOOLEAN)


def _extreme(name: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        kind = common_type(list(arguments), name)
        if len(arguments) < 2 or kind.kind == "decimal" or kind.is_nested:
            raise NotAnswerable(f"{name} of {kind}")
        texts = [cast(each, kind).sql for each in arguments]
        return Typed(f"spark_{name}({', '.join(texts)})", kind, is_stored=True)

    return call


def _exactly(arguments: Sequence[Typed], count: int) -> Sequence[Typed]:
    if len(arguments) != count:
        raise NotAnswerable(f"{len(arguments)} arguments instead of {count}")
    return arguments


# --------------------------------------------------------------------------------------- strings


def _concat(arguments: Sequence[Typed]) -> Typed:
    texts = [_as("text", each) for each in arguments]
    if not texts or any(each.kind == BINARY for each in arguments):
        raise NotAnswerable("concat of bytes")
    return Typed(f"({' || '.join(texts)})", STRING)


def _concat_ws(arguments: Sequence[Typed]) -> Typed:
    texts = [_as("text", each) for each in arguments]
    return Typed(f"spark_concat_ws({', '.join(texts)})", STRING)


def _substring(arguments: Sequence[Typed]) -> Typed:
    kind = BINARY if arguments and arguments[0].kind == BINARY else STRING
    take = "binary" if kind == BINARY else "text"
    if len(arguments) == 2:
        return _Signature("spark_substring", kind, take, "int")(arguments)
    return _Signature("spark_substring", kind, take, "int", "int")(arguments)


def _instr(arguments: Sequence[Typed]) -> Typed:
    text, part = _exactly(arguments, 2)
    return _Signature("spark_locate", INT, "text", "text")((part, text))


def _trim(sides: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        if len(arguments) == 2:
            # The characters come first.
            characters, text = arguments
            return _Signature("spark_trim", STRING, "text", "text", more=f", '{sides}'")(
                (text, characters)
            )
        return _Signature(
            "spark_trim", STRING, "text", "text", defaults=("' '",), more=f", '{sides}'"
        )(arguments)

    return call


def _digest(name: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        (value,) = _exactly(arguments, 1)
        return Typed(f"spark_digest('{name}', {_as('octets', value)})", STRING)

    return call


def _hex(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    take = "int" if is_integer(value.kind) else "octets"
    return _Signature("spark_hex", STRING, take)(arguments)


def _length(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    take = "binary" if value.kind == BINARY else "text"
    return _Signature("spark_length", INT, take)(arguments)


# --------------------------------------------------------------------------------------- numbers


def _absolute(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    if not is_integer(value.kind) and value.kind != DOUBLE:
        raise NotAnswerable(f"abs of {value.kind}")
    return Typed(f"abs({number_sql(value)})", value.kind)


def _sign(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    return Typed(f"CAST(sign({_as('double', value)}) AS REAL)", DOUBLE)


def _round(arguments: Sequence[Typed]) -> Typed:
    value = arguments[0]
    digits = arguments[1].constant if len(arguments) == 2 else 0
    if len(arguments) > 2 or not isinstance(digits, int) or abs(digits) > 30:
        raise NotAnswerable("round with a number of digits that is no literal")
    if is_integer(value.kind):
        return Typed(f"spark_round_integer({value.sql}, {digits})", value.kind)
    if value.kind == DOUBLE:
        return Typed(f"spark_round({number_sql(value)}, {digits})", DOUBLE)
    if value.kind.kind != "decimal" or digits < 0:
        raise NotAnswerable(f"round of {value.kind}")
    scale = min(value.kind.scale, digits)
    whole = value.kind.precision - value.kind.scale + (digits < value.kind.scale)
    kind = bounded(max(whole + scale, 1), scale)
    sql = f"spark_decimal_round({value.sql}, {digits}, {kind.precision}, {kind.scale})"
    return Typed(sql, kind)


def _whole(name: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        (value,) = _exactly(arguments, 1)
        if is_integer(value.kind):
            return cast(value, BIGINT)
        if value.kind != DOUBLE:
            raise NotAnswerable(f"{name} of {value.kind}")
        return Typed(f"spark_{name}({number_sql(value)})", BIGINT)

    return call


def _modulo(arguments: Sequence[Typed]) -> Typed:
    left, right = _exactly(arguments, 2)
    return arithmetic("%", left, right)


def _pmod(arguments: Sequence[Typed]) -> Typed:
    left, right = _exactly(arguments, 2)
    kind = common_type([left, right], "pmod")
    if not is_integer(kind) and kind != DOUBLE:
        raise NotAnswerable(f"pmod of {kind}")
    return Typed(f"spark_pmod({number_sql(left)}, {number_sql(right)})", kind, is_stored=True)


# ------------------------------------------------------------------------------- dates and times


def _date_part(unit: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        (value,) = _exactly(arguments, 1)
        return Typed(f"spark_date_part('{unit}', {_as('date', value)})", INT)

    return call


def _moment_part(unit: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        (value,) = _exactly(arguments, 1)
        return Typed(f"spark_moment_part('{unit}', {_as('timestamp', value)})", INT)

    return call


def _days_later(sign: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        date, number = _exactly(arguments, 2)
        return Typed(f"({_as('date', date)} {sign} {_as('int', number)})", DATE)

    return call


def _datediff(arguments: Sequence[Typed]) -> Typed:
    end, start = _exactly(arguments, 2)
    return Typed(f"({_as('date', end)} - {_as('date', start)})", INT)


def _shifted(result: ColumnType, take: str, template: str) -> Function:
    """A calculation with one argument."""

    def call(arguments: Sequence[Typed]) -> Typed:
        (value,) = _exactly(arguments, 1)
        return Typed(template.replace("{0}", _as(take, value)), result)

    return call


def _floored(divisor: int) -> str:
    """Division towards the past."""
    return f"spark_floor_quotient({{0}}, {divisor})"


def _to_moment(result: ColumnType, *, may_fail: bool) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        value = arguments[0]
        if len(arguments) == 1:
            if may_fail and value.kind == STRING:
                name = "spark_date" if result == DATE else "spark_timestamp"
                return Typed(f"{name}({value.sql})", result)
            return cast(value, result)
        text, pattern = _exactly(arguments, 2)
        if text.kind != STRING or not isinstance(pattern.constant, str):
            raise NotAnswerable("a pattern of times that is no literal")
        name = "spark_parse" if may_fail else "spark_must_parse"
        found = f"{name}({text.sql}, {pattern.sql})"
        return Typed(_floored(_DAY).replace("{0}", found) if result == DATE else found, result)

    return call


def _date_trunc(arguments: Sequence[Typed]) -> Typed:
    unit, moment = _exactly(arguments, 2)
    return Typed(f"spark_trunc({_as('string', unit)}, {_as('timestamp', moment)})", TIMESTAMP)


def _trunc(arguments: Sequence[Typed]) -> Typed:
    date, unit = _exactly(arguments, 2)
    return Typed(f"spark_trunc_date({_as('string', unit)}, {_as('date', date)})", DATE)


# ------------------------------------------------------------------------- arrays, maps, structs


def _size(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    if value.kind.kind not in ("array", "map"):
        raise NotAnswerable(f"size of {value.kind}")
    # What the size of null is depends on settings of Spark.
    return Typed(f"spark_array_size(spark_required({value.sql}))", INT)


def _array_size(arguments: Sequence[Typed]) -> Typed:
    (value,) = _exactly(arguments, 1)
    if value.kind.kind != "array":
        raise NotAnswerable(f"array_size of {value.kind}")
    return Typed(f"spark_array_size({value.sql})", INT)


def _element_at(name: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        value, place = _exactly(arguments, 2)
        if value.kind.kind == "array" and is_integer(place.kind):
            return leaf(f"{name}({value.sql}, {place.sql})", value.kind.items)
        if value.kind.kind == "map" and value.kind.keys == place.kind:
            return leaf(f"spark_map_value({value.sql}, {place.sql})", value.kind.items)
        raise NotAnswerable(f"element_at of {value.kind} with {place.kind}")

    return call


def leaf(sql: str, kind: ColumnType) -> Typed:
    """A part of stored JSON as a value."""
    if kind.kind == "binary":
        return Typed(f"spark_unbase64({sql})", kind)
    if kind.kind == "variant":
        raise NotAnswerable("a part of the type variant")
    return Typed(sql, kind, is_stored=True)


def _array_contains(arguments: Sequence[Typed]) -> Typed:
    array, value = _exactly(arguments, 2)
    simple = array.kind.kind == "array" and array.kind.items.kind in ("string", "boolean")
    numbers = array.kind.kind == "array" and is_integer(array.kind.items) and is_integer(value.kind)
    if not numbers and not (simple and array.kind.items == value.kind):
        raise NotAnswerable(f"array_contains of {array.kind} and {value.kind}")
    return Typed(f"spark_array_contains({array.sql}, {value.sql})", BOOLEAN)


def _map_contains_key(arguments: Sequence[Typed]) -> Typed:
    value, key = _exactly(arguments, 2)
    if value.kind.kind != "map" or value.kind.keys != key.kind:
        raise NotAnswerable(f"map_contains_key of {value.kind} and {key.kind}")
    return Typed(f"spark_map_has_key({value.sql}, {key.sql})", BOOLEAN)


def _of_map(name: str, part: str) -> Function:
    def call(arguments: Sequence[Typed]) -> Typed:
        (value,) = _exactly(arguments, 1)
        if value.kind.kind != "map":
            raise NotAnswerable(f"{name} of {value.kind}")
        element = value.kind.keys if part == "keys" else value.kind.items
        return Typed(f"spark_{name}({value.sql})", ColumnType("array", element=element))

    return call


def _array_join(arguments: Sequence[Typed]) -> Typed:
    array, separator = _exactly(arguments, 2)
    if array.kind != ColumnType("array", element=STRING):
        raise NotAnswerable(f"array_join of {array.kind}")
    return Typed(f"spark_array_join({array.sql}, {_as('string', separator)})", STRING)


def as_json(value: Typed) -> str:
    """A value as a part of stored JSON, for functions of SQLite that make JSON."""
    if value.kind.is_nested:
        return f"json({value.sql})"
    if value.kind.kind == "boolean":
        return f"json(spark_boolean_text({value.sql}))"
    if value.kind.kind == "binary":
        return f"spark_base64({value.sql})"
    if value.kind.kind == "variant":
        raise NotAnswerable("a part of the type variant")
    return value.sql


def _array(arguments: Sequence[Typed]) -> Typed:
    kind = common_type(list(arguments), "array")
    parts = [as_json(cast(each, kind)) for each in arguments]
    return Typed(f"json_array({', '.join(parts)})", ColumnType("array", element=kind))


def struct(names: Sequence[str], values: Sequence[Typed]) -> Typed:
    """A struct of these fields."""
    kind = ColumnType(
        "struct", fields=tuple((n, each.kind) for n, each in zip(names, values, strict=True))
    )
    parts = [
        f"{_quoted(name)}, {as_json(value)}" for name, value in zip(names, values, strict=True)
    ]
    return Typed(f"json_object({', '.join(parts)})", kind)


def _named_struct(arguments: Sequence[Typed]) -> Typed:
    names = [each.constant for each in arguments[::2]]
    if len(arguments) % 2 or not all(isinstance(name, str) for name in names):
        raise NotAnswerable("named_struct with names that are no literals")
    return struct(names, arguments[1::2])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


FUNCTIONS: dict[str, Function] = {
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nvl": _coalesce,
    "nvl2": _nvl2,
    "if": _if,
    "nullif": _nullif,
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "isnan": _is_nan,
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    # strings
    "upper": _Signature("spark_upper", STRING, "text"),
    "lower": _Signature("spark_lower", STRING, "text"),
    "length": _length,
    "octet_length": _Signature("spark_octets", INT, "string"),
    "substring": _substring,
    "left": _Signature("spark_left", STRING, "text", "int"),
    "right": _Signature("spark_right", STRING, "text", "int"),
    "concat": _concat,
    "concat_ws": _concat_ws,
    "instr": _instr,
    "locate": _Signature("spark_locate", INT, "text", "text", "int", defaults=("1",)),
    "lpad": _Signature("spark_lpad", STRING, "text", "int", "text", defaults=("' '",)),
    "rpad": _Signature("spark_rpad", STRING, "text", "int", "text", defaults=("' '",)),
    "repeat": _Signature("spark_repeat", STRING, "text", "int"),
    "replace": _Signature("spark_replace", STRING, "text", "text", "text", defaults=("''",)),
    "reverse": _Signature("spark_reverse", STRING, "string"),
    "initcap": _Signature("spark_initcap", STRING, "text"),
    "trim": _trim("lr"),
    "ltrim": _trim("l"),
    "rtrim": _trim("r"),
    "startswith": _Signature("spark_starts", BOOLEAN, "string", "string"),
    "endswith": _Signature("spark_ends", BOOLEAN, "string", "string"),
    "contains": _Signature("spark_contains", BOOLEAN, "string", "string"),
    "ascii": _Signature("spark_ascii", INT, "string"),
    "md5": _digest("md5"),
    "sha": _digest("sha1"),
    "sha1": _digest("sha1"),
    "hex": _hex,
    "sha2": _Signature("spark_sha2", STRING, "octets", "int"),
    "crc32": _Signature("spark_crc32", BIGINT, "octets"),
    "base64": _Signature("spark_base64", STRING, "binary"),
    "unbase64": _Signature("spark_unbase64", BINARY, "string"),
    "get_json_object": _Signature("spark_json_path", STRING, "string", "string"),
    # numbers
    "abs": _absolute,
    "sign": _sign,
    "signum": _sign,
    "round": _round,
    "ceil": _whole("ceil"),
    "floor": _whole("floor"),
    "mod": _modulo,
    "pmod": _pmod,
    # Powers, logarithms and so on have other last digits in Java.
    "sqrt": _Signature("spark_sqrt", DOUBLE, "double", is_stored=True),
    # dates and times
    "year": _date_part("year"),
    "month": _date_part("month"),
    "day": _date_part("day"),
    "quarter": _date_part("quarter"),
    "dayofweek": _date_part("dayofweek"),
    "weekday": _date_part("weekday"),
    "dayofyear": _date_part("dayofyear"),
    "weekofyear": _date_part("week"),
    "hour": _moment_part("hour"),
    "minute": _moment_part("minute"),
    "second": _moment_part("second"),
    "date_add": _days_later("+"),
    "date_sub": _days_later("-"),
    "datediff": _datediff,
    "add_months": _Signature("spark_add_months", DATE, "date", "int"),
    "last_day": _Signature("spark_last_day", DATE, "date"),
    "make_date": _Signature("spark_make_date", DATE, "int", "int", "int"),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_format": _Signature("spark_format", STRING, "timestamp", "string"),
    "to_date": _to_moment(DATE, may_fail=False),
    "try_to_date": _to_moment(DATE, may_fail=True),
    "to_timestamp": _to_moment(TIMESTAMP, may_fail=False),
    "try_to_timestamp": _to_moment(TIMESTAMP, may_fail=True),
    "unix_date": _shifted(INT, "date", "{0}"),
    "date_from_unix_date": _shifted(DATE, "int", "{0}"),
    "unix_seconds": _shifted(BIGINT, "timestamp", _floored(1_000_000)),
    "unix_millis": _shifted(BIGINT, "timestamp", _floored(1_000)),
    "unix_micros": _shifted(BIGINT, "timestamp", "{0}"),
    "timestamp_seconds": _shifted(TIMESTAMP, "int", "({0} * 1000000)"),
    "timestamp_millis": _shifted(TIMESTAMP, "int", "({0} * 1000)"),
    "timestamp_micros": _shifted(TIMESTAMP, "int", "{0}"),
    # arrays, maps, structs
    "size": _size,
    "array_size": _array_size,
    "element_at": _element_at("spark_array_element"),
    "try_element_at": _element_at("spark_try_array_element"),
    "array_contains": _array_contains,
    "map_contains_key": _map_contains_key,
    "map_keys": _of_map("map_keys", "keys"),
    "map_values": _of_map("map_values", "values"),
    "array_join": _array_join,
    "array": _array,
    "named_struct": _named_struct,
}
_SAME = {
    "ucase": "upper",
    "lcase": "lower",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "ceiling": "ceil",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "cardinality": "size",
}
FUNCTIONS |= {name: FUNCTIONS[other] for name, other in _SAME.items()}
