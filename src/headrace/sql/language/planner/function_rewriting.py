"""Puts Spark's functions in the place of ksqlDB's."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import read_query
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.functions import IMPOSSIBLE, SAME_NAME_IN_SPARK, SPARK_SQL

_ARGUMENT = re.compile(r"\{(\d+)(\*?)\}")
_ENCODINGS = {"hex", "utf8", "ascii", "base64"}


@dataclass(frozen=True, slots=True)
class RewriteContext:
    """What functions need to know of the query that they are in."""

    type_of: Callable[[exp.Expr], str | None] = field(default=lambda _: None)
    """Spark's type of a column or field, if it is known."""
    order: exp.Expr | None = None
    """What LATEST_BY_OFFSET and EARLIEST_BY_OFFSET sort by, with names as in the statement; None:
    they are not possible."""


def rewritten(node: exp.Expr, context: RewriteContext) -> exp.Expr:
    """A copy of the expression in Spark's SQL."""
    # Deepest first: arguments are Spark's when their function is rewritten.
    root = exp.Paren(this=node.copy())
    for each in sorted(root.walk(), key=lambda found: -found.depth):
        if isinstance(each, exp.Anonymous):
            replacement = _function(each, context)
        elif isinstance(each, exp.Bracket):
            replacement = _subscript(each, context)
        else:
            continue
        if replacement is not each:
            each.replace(replacement)
    found: exp.Expr = root.this
    found.pop()
    return found


def spark_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call of a function of Spark, or of one of `SPARK_SQL` by its name and arity."""
    template = SPARK_SQL.get(name)
    if template is not None:
        return _filled(template, list(arguments))
    return exp.Anonymous(this=name, expressions=list(arguments))


def _filled(template: str, arguments: list[exp.Expr]) -> exp.Expr:
    """The template's expression with the arguments in their places."""
    found = _template(template, len(arguments)).copy()
    for column in list(found.find_all(exp.Column)):
        if column.name.startswith("__arg"):
            argument = arguments[int(column.name.removeprefix("__arg"))].copy()
            if column is found:
                return argument
            column.replace(_enclosed(argument))
    return _enclosed(found)


def _enclosed(node: exp.Expr) -> exp.Expr:
    """In parentheses if it has operators: what is around it may bind more tightly."""
    has_operator = isinstance(node, exp.Binary | exp.Unary | exp.Between | exp.In)
    if has_operator and not isinstance(node, exp.Paren | exp.Dot):
        return exp.Paren(this=node)
    return node


@lru_cache(maxsize=256)
def _template(template: str, count: int) -> exp.Expr:
    def placed(found: re.Match[str]) -> str:
        first = int(found.group(1))
        last = count if found.group(2) else first + 1
        return ", ".join(f"__arg{index}" for index in range(first, last))

    return read_query(f"SELECT {_ARGUMENT.sub(placed, template)}").selects[0]


def _function(call: exp.Anonymous, context: RewriteContext) -> exp.Expr:
    name, arguments = str(call.name).upper(), call.expressions
    if isinstance(call.this, exp.Identifier):
        return call
    if name in IMPOSSIBLE:
        raise SqlError(f"The function {name} is not possible: {IMPOSSIBLE[name]}.", *place_of(call))
    special = _SPECIAL.get(name)
    if special is not None:
        return special(call, context)
    template = SPARK_SQL.get(f"{name}/{len(arguments)}") or SPARK_SQL.get(name)
    if template is not None:
        return _filled(template, arguments)
    counts = sorted(
        int(known.partition("/")[2]) for known in SPARK_SQL if known.partition("/")[0] == name
    )
    if counts and name not in SAME_NAME_IN_SPARK:
        takes = " or ".join(map(str, counts))
        raise SqlError(
            f"The function {name} takes {takes} argument{'s' if counts != [1] else ''}, not"
            f" {len(arguments)}.",
            *place_of(call),
        )
    return call


def _subscript(node: exp.Bracket, context: RewriteContext) -> exp.Expr:
    """`x[i]`: an element, counted from 1 or from the end with a minus, or the value of a key."""
    if len(node.expressions) != 1:
        raise SqlError("A subscript is one index or one key.", *place_of(node))
    index = node.expressions[0]
    if isinstance(index, exp.Literal) and not index.is_string and index.name == "0":
        raise SqlError("The first element of an array has the index 1.", *place_of(node))
    known = context.type_of(node.this) or ""
    if known.startswith("array") and not isinstance(index, exp.Literal | exp.Neg):
        # Spark fails at 0; ksqlDB has a null there.
        index = spark_call("nullif", index, exp.Literal.number(0))
    return spark_call("element_at", node.this, index)


def _struct(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """`STRUCT(name := value)`."""
    fields = [
        exp.alias_(each.expression, each.this.name, quoted=True)
        if isinstance(each, exp.PropertyEQ)
        else each
        for each in call.expressions
    ]
    return spark_call("struct", *fields)


def _map(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """`MAP(key := value)`."""
    parts: list[exp.Expr] = []
    for each in call.expressions:
        parts += [each.this, each.expression] if isinstance(each, exp.PropertyEQ) else [each]
    return spark_call("map", *parts)


def _concat(call: exp.Anonymous, context: RewriteContext) -> exp.Expr:
    """Nulls are empty strings; arrays and bytes are left to Spark's function."""
    for each in call.expressions:
        known = context.type_of(each) or ""
        is_array = isinstance(each, exp.Array) or known.startswith(("array", "binary"))
        if is_array or (isinstance(each, exp.Anonymous) and "array" in str(each.name).lower()):
            return call
    return spark_call("concat_ws", exp.Literal.string(""), *call.expressions)


def _by_offset(call: exp.Anonymous, context: RewriteContext) -> exp.Expr:
    """LATEST_BY_OFFSET and EARLIEST_BY_OFFSET `(x [, n] [, ignoreNulls])`."""
    name = str(call.name).upper()
    if context.order is None:
        raise SqlError(f"{name} is only for streams with GROUP BY.", *place_of(call))
    value, *options = call.expressions or [None]
    if value is None or len(options) > 2:
        raise SqlError(f"{name} takes a column, and a count and TRUE or FALSE.", *place_of(call))
    ignore_nulls = True
    if options and isinstance(options[-1], exp.Boolean):
        ignore_nulls = bool(options.pop().this)
    function = "max_by" if name.startswith("LATEST") else "min_by"
    found: exp.Expr
    if options:
        # The newest come first from max_by; ksqlDB has them in the order of their offsets.
        found = spark_call(function, value, context.order.copy(), options[0])
    else:
        found = spark_call(function, value, context.order.copy())
    if ignore_nulls:
        condition = exp.Is(this=value.copy(), expression=exp.Null()).not_()
        found = exp.Filter(this=found, expression=exp.Where(this=condition))
    return spark_call("reverse", found) if options and function == "max_by" else found


def _topk(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """`TOPK(x, k)`, and with other columns `TOPK(x, a, b, k)`, which gives structs."""
    value, *others = call.expressions
    if not others:
        raise SqlError("TOPK takes a column and a count.", *place_of(call))
    *columns, count = others
    if not columns:
        return spark_call("TOPK/2", value, count)
    fields = [exp.alias_(value, "sort_col", quoted=True)]
    fields += [exp.alias_(each, f"col{index}", quoted=True) for index, each in enumerate(columns)]
    condition = exp.Is(this=value.copy(), expression=exp.Null()).not_()
    rows = exp.Filter(
        this=spark_call("collect_list", spark_call("struct", *fields)),
        expression=exp.Where(this=condition),
    )
    ordered = spark_call("sort_array", rows, exp.false())
    return spark_call("slice", ordered, exp.Literal.number(1), count)


def _array_sort(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    if len(call.expressions) == 2 and isinstance(call.expressions[1], exp.Literal):
        direction = call.expressions[1].name.upper()
        if direction.startswith("DESC"):
            return spark_call("array sorted downwards/1", call.expressions[0])
        return spark_call("array_sort", call.expressions[0])
    return call


def _trunc(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """Of numbers, towards zero; `trunc(date, 'MONTH')` is Spark's."""
    value, *rest = call.expressions
    if rest and isinstance(rest[0], exp.Literal) and rest[0].is_string:
        return call
    if not rest:
        return _filled("CAST(if({0} < 0, ceil({0}), floor({0})) AS BIGINT)", [value])
    return _filled(
        "if({0} < 0, ceil({0} * power(10, {1})), floor({0} * power(10, {1}))) / power(10, {1})",
        [value, rest[0]],
    )


def _lambda_of(call: exp.Anonymous, index: int) -> exp.Lambda | None:
    found = call.expressions[index] if len(call.expressions) > index else None
    return found if isinstance(found, exp.Lambda) else None


def _filter(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """Of a map the lambda has a key and a value."""
    found = _lambda_of(call, 1)
    if found is not None and len(found.expressions) == 2:
        return spark_call("map_filter", *call.expressions)
    return call


def _transform(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """Of a map there are two lambdas: for the keys and for the values."""
    keys, values = _lambda_of(call, 1), _lambda_of(call, 2)
    if keys is None or values is None:
        return call
    entry = exp.Lambda(
        this=spark_call("struct", _of_entry(keys), _of_entry(values)),
        expressions=[exp.to_identifier("__e")],
    )
    entries = spark_call("map_entries", call.expressions[0])
    return spark_call("map_from_entries", spark_call("transform", entries, entry))


def _reduce(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """Of a map the lambda has the state, a key and a value."""
    found = _lambda_of(call, 2)
    if found is None or len(found.expressions) != 3:
        return call
    state, *entry = found.expressions
    body = _of_entry(exp.Lambda(this=found.this, expressions=entry))
    merge = exp.Lambda(this=body, expressions=[state.copy(), exp.to_identifier("__e")])
    entries = spark_call("map_entries", call.expressions[0])
    return spark_call("aggregate", entries, call.expressions[1], merge)


def _of_entry(function: exp.Lambda) -> exp.Expr:
    """The body of a lambda of key and value, over an entry `__e` of a map."""
    key, value = (each.name for each in function.expressions)
    names = {key: "key", value: "value"}
    root = exp.Paren(this=function.this.copy())
    for each in list(root.find_all(exp.Identifier)):
        parent = each.parent
        is_field = isinstance(parent, exp.Dot) and parent.expression is each
        if each.name in names and not is_field and not isinstance(parent, exp.Column):
            each.replace(
                exp.Dot(
                    this=exp.to_identifier("__e"), expression=exp.to_identifier(names[each.name])
                )
            )
    body: exp.Expr = root.this
    body.pop()
    return body


def _encoding(call: exp.Anonymous, node: exp.Expr) -> str:
    name = node.name.lower() if isinstance(node, exp.Literal) else ""
    if name not in _ENCODINGS:
        raise SqlError(
            f"The encoding of {call.name} is 'hex', 'utf8', 'ascii' or 'base64'.", *place_of(call)
        )
    return name


_TO_BYTES = {
    "hex": "unhex({0})",
    "base64": "unbase64({0})",
    "utf8": "encode({0}, 'UTF-8')",
    "ascii": "encode({0}, 'US-ASCII')",
}
_FROM_BYTES = {
    "hex": "hex({0})",
    "base64": "base64({0})",
    "utf8": "decode({0}, 'UTF-8')",
    "ascii": "decode({0}, 'US-ASCII')",
}


def _to_bytes(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    text, encoding = _expect_arguments(call, 2)
    return _filled(_TO_BYTES[_encoding(call, encoding)], [text])


def _from_bytes(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    data, encoding = _expect_arguments(call, 2)
    return _filled(_FROM_BYTES[_encoding(call, encoding)], [data])


def _encode(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """`ENCODE(text, from, to)`; with two arguments it is Spark's."""
    if len(call.expressions) == 2:
        return call
    text, source, target = _expect_arguments(call, 3)
    data = _filled(_TO_BYTES[_encoding(call, source)], [text])
    return _filled(_FROM_BYTES[_encoding(call, target)], [data])


def _expect_arguments(call: exp.Anonymous, count: int) -> list[exp.Expr]:
    if len(call.expressions) != count:
        raise SqlError(
            f"The function {call.name} takes {count} arguments, not {len(call.expressions)}.",
            *place_of(call),
        )
    return list(call.expressions)


_UNITS = {"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"}
_TIME_SECONDS = {"HOUR": 3600, "MINUTE": 60, "SECOND": 1}


def _add_units(call: exp.Anonymous, _: RewriteContext) -> exp.Expr:
    """DATEADD, TIMESTAMPADD, TIMEADD and those with SUB: `(unit, count, value)`."""
    name = str(call.name).upper()
    if len(call.expressions) != 3:
        return call  # Spark's DATEADD(date, days)
    unit_node, count, value = call.expressions
    unit = unit_node.name.upper().removesuffix("S")
    if unit not in _UNITS:
        units = ", ".join(sorted(f"{each}S" for each in _UNITS))
        raise SqlError(f"The first argument of {name} is a unit: {units}.", *place_of(call))
    if name.endswith("SUB"):
        count = exp.Neg(this=exp.Paren(this=count))
    if name.startswith("TIMESTAMP"):
        return spark_call("timestampadd", exp.var(unit), count, value)
    if name.startswith("DATE"):
        added = spark_call("timestampadd", exp.var(unit), count, value)
        return exp.cast(added, "date", dialect="spark")
    seconds = _TIME_SECONDS.get(unit)
    if seconds is None:
        raise SqlError(f"{name} adds HOURS, MINUTES or SECONDS.", *place_of(call))
    return _filled(
        "time_from_micros(pmod(time_to_micros({0}) + CAST({1} AS BIGINT) * {2} * 1000000,"
        " 86400000000))",
        [value, count, exp.Literal.number(seconds)],
    )


_SPECIAL: Mapping[str, Callable[[exp.Anonymous, RewriteContext], exp.Expr]] = {
    "ARRAY_SORT": _array_sort,
    "CONCAT": _concat,
    "DATEADD": _add_units,
    "DATESUB": _add_units,
    "EARLIEST_BY_OFFSET": _by_offset,
    "ENCODE": _encode,
    "FILTER": _filter,
    "FROM_BYTES": _from_bytes,
    "LATEST_BY_OFFSET": _by_offset,
    "MAP": _map,
    "REDUCE": _reduce,
    "STRUCT": _struct,
    "TIMEADD": _add_units,
    "TIMESTAMPADD": _add_units,
    "TIMESTAMPSUB": _add_units,
    "TIMESUB": _add_units,
    "TOPK": _topk,
    "TO_BYTES": _to_bytes,
    "TRANSFORM": _transform,
    "TRUNC": _trunc,
}
