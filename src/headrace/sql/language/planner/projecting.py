"""The columns of a result: which, with which names, and which of them are the key."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.sql.language.datatypes import struct_fields
from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.function_rewriting import spark_call
from headrace.sql.language.planner.functions import TABLE_FUNCTIONS
from headrace.sql.language.planner.scope import ROWKEY, Found, Relation, SelectScope, quoted
from headrace.sql.plans import ROWOFFSET, ROWPARTITION, ROWTIME, WINDOWEND, WINDOWSTART

EXPLODED = "__exploded"
_NUMBERED = re.compile(r"(.*?)(?:_(\d+))?")


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the result."""

    name: str
    written: exp.Expr
    """As it is in the statement, without its alias."""
    spark: exp.Expr

    @property
    def is_copy(self) -> bool:
        """AS_VALUE: the value is that of a key, and the column is not in the key."""
        return _is_call(self.written, ("AS_VALUE",))


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the result's key, which has to be among the columns of the result."""

    label: str
    """For messages."""
    viable: tuple[exp.Expr, ...]
    """Expressions of Spark's SQL that have its value."""
    value: exp.Expr | None = None
    """Its value, if some of those may be null where the key is not."""


class _Names:
    """Names for columns without aliases, as ksqlDB chooses them."""

    def __init__(self, relations: Iterable[Relation]) -> None:
        self.used: dict[str, set[int]] = {}
        self.next: dict[str, int] = {}
        for relation in relations:
            for name in relation.column_names():
                stem, number = self._parts(name)
                self.used.setdefault(stem, set()).add(number)

    @staticmethod
    def _parts(name: str) -> tuple[str, int]:
        found = _NUMBERED.fullmatch(name)
        assert found is not None, "the pattern matches every line"
        return found.group(1).casefold(), int(found.group(2) or 0)

    def of_expression(self) -> str:
        return f"KSQL_COL_{self._number('ksql_col')}"

    def of_field(self, name: str) -> str:
        number = self._number(self._parts(name)[0])
        stem = name if number == 0 else re.sub(r"_\d+$", "", name)
        return stem if number == 0 else f"{stem}_{number}"

    def _number(self, stem: str) -> int:
        number = self.next.get(stem, 0)
        while number in self.used.get(stem, ()):
            number += 1
        self.next[stem] = number + 1
        return number


def projected(
    projections: Iterable[exp.Expr], scope: SelectScope, *, is_stored: bool
) -> list[Item]:
    """The columns of the result. `is_stored`: of a stream or table, and not of a push query."""
    names = _Names(scope.relations)
    items: list[Item] = []
    for node in projections:
        for item in _expanded(node, scope, names, is_stored):
            upper = item.name.upper()
            if is_stored and upper in (WINDOWSTART, WINDOWEND):
                continue  # bounds of windows are in the key
            if is_stored and upper in (ROWTIME, ROWPARTITION, ROWOFFSET):
                raise SqlError(
                    f"{upper} is reserved: give the column another name, as in {upper} AS"
                    f" {upper.lower().removeprefix('row')}_of_row.",
                    *place_of(node),
                )
            items.append(item)
    seen: set[str] = set()
    for item in items:
        if item.name.casefold() in seen:
            raise SqlError(
                f"The result has two columns {item.name}: give one of them an alias (AS).",
                *place_of(item.written),
            )
        seen.add(item.name.casefold())
    if not items:
        raise SqlError("The result has no columns.")
    return items


def _expanded(node: exp.Expr, scope: SelectScope, names: _Names, is_stored: bool) -> Iterator[Item]:
    if isinstance(node, exp.Star):
        yield from _star(node, scope, None, is_stored)
        return
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        owner = node.parts[0].name
        relation = scope.relation(owner) if len(node.parts) == 2 else None
        if relation is not None:
            yield from _star(node.this, scope, relation, is_stored)
        else:
            yield from _fields(node, scope)
        return
    alias = node.alias if isinstance(node, exp.Alias) else None
    written = node.this if isinstance(node, exp.Alias) else node
    if alias is None:
        alias = _name(written, scope, names)
    yield Item(alias, written, scope.spark(written))


def _name(node: exp.Expr, scope: SelectScope, names: _Names) -> str:
    found = scope.find(node)
    if found is None:
        return names.of_expression()
    if found.relation is None:
        is_special = isinstance(node, exp.Column) and len(node.parts) == 1
        return found.name if is_special else names.of_field(found.name)
    is_qualified = isinstance(node, exp.Column) and len(node.parts) > 1
    clashes = sum(each.source.column(found.name) is not None for each in scope.relations) > 1
    return f"{found.relation.alias}_{found.name}" if is_qualified and clashes else found.name


def _star(
    star: exp.Star, scope: SelectScope, only: Relation | None, is_stored: bool
) -> Iterator[Item]:
    """`*` and `alias.*`. In joins, columns have the alias of their source before their names."""
    is_join = len(scope.relations) > 1
    left_out = {each.name.casefold() for each in star.args.get("except_") or ()}
    synthetic = scope.special.get(ROWKEY)
    if only is None and synthetic is not None and synthetic.name == ROWKEY:
        yield Item(ROWKEY, quoted(ROWKEY), synthetic.expression.copy())
    for relation in [only] if only else scope.relations:
        columns = relation.column_names()
        if relation.source.window and not is_stored and not is_join:
            keys = [column.name for column in relation.source.keys]
            columns = [*keys, WINDOWSTART, WINDOWEND, *(c for c in columns if c not in keys)]
        for column in columns:
            if column.casefold() not in left_out:
                name = f"{relation.alias}_{column}" if is_join else column
                yield Item(name, quoted(column, relation.alias), relation.at(column))


def _fields(node: exp.Column, scope: SelectScope) -> Iterator[Item]:
    """`struct->*`: the fields of a struct."""
    parts = [part.name for part in node.parts[:-1]]
    outer: exp.Expr = exp.column(parts[0], copy=False)
    for part in parts[1:]:
        outer = exp.Dot(this=outer, expression=exp.to_identifier(part))
    for identifier, written in zip(outer.find_all(exp.Identifier), node.parts, strict=False):
        identifier.meta.update(written.meta)
    found = scope.find(outer)
    fields = struct_fields(found.type) if found and found.type else None
    if fields is None:
        raise SqlError(f"{'.'.join(parts)} is neither a source nor a struct.", *place_of(node))
    for name in fields:
        written = exp.Dot(this=outer.copy(), expression=exp.to_identifier(name, quoted=True))
        yield Item(name, written, scope.spark(written))


def key_names(
    items: list[Item], keys: Iterable[KeyColumn], *, is_stored: bool, of: str
) -> tuple[list[Item], tuple[str, ...]]:
    """The items and the names of those that are the key.

    Raises SqlError if a stored result lacks one, or has one twice. `of` says what makes the key.
    """
    result, names = list(items), []
    for key in keys:
        texts = {sql_of(each) for each in key.viable}
        found = [
            index
            for index, item in enumerate(items)
            if not item.is_copy and sql_of(item.spark) in texts and item.name not in names
        ]
        if not found and is_stored:
            raise SqlError(
                f"The key is not in the result: the SELECT needs {key.label} ({of}) among its"
                " columns."
            )
        same = [index for index in found if sql_of(items[index].spark) == _text(items, found)]
        if len(same) > 1 and is_stored:
            twice = " and ".join(items[index].name for index in same)
            raise SqlError(
                f"The key column {key.label} is in the result more than once: {twice}. For a copy"
                f" in the value, write AS_VALUE({key.label})."
            )
        if found:
            first = found[0]
            if key.value is not None:
                result[first] = replace(items[first], spark=key.value)
            names.append(items[first].name)
    return result, tuple(names)


def _text(items: list[Item], found: list[int]) -> str:
    return sql_of(items[found[0]].spark)


def _is_call(node: exp.Expr, names: Iterable[str]) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.name).upper() in names


@dataclass(frozen=True, slots=True)
class Exploded:
    """Projections without table functions, and the LATERAL VIEW that has their rows."""

    projections: tuple[exp.Expr, ...]
    special: Mapping[str, Found]
    laterals: tuple[str, ...]


def without_table_functions(projections: Iterable[exp.Expr], scope: SelectScope) -> Exploded:
    """EXPLODE becomes a column of a LATERAL VIEW; several are read side by side."""
    arrays: list[exp.Expr] = []
    result = []
    for node in projections:
        root = exp.Paren(this=node.copy())
        for call in list(root.find_all(exp.Anonymous)):
            if not _is_call(call, TABLE_FUNCTIONS):
                continue
            if any(_is_call(each, TABLE_FUNCTIONS) for each in call.walk() if each is not call):
                raise SqlError("Table functions cannot be nested.", *place_of(call))
            if len(call.expressions) != 1:
                raise SqlError(f"{call.name} takes one array.", *place_of(call))
            _refuse_map(call, scope)
            is_cube = _is_call(call, ("CUBE_EXPLODE",))
            arrays.append(scope.spark(call if is_cube else call.expressions[0]))
            call.replace(exp.column(f"{EXPLODED}_{len(arrays) - 1}"))
        inner: exp.Expr = root.this
        inner.pop()
        result.append(inner)
    if not arrays:
        return Exploded(tuple(result), {}, ())
    index = exp.column(EXPLODED)
    if len(arrays) == 1:
        values: list[exp.Expr] = [index]
        rows = sql_of(arrays[0])
    else:
        values = [spark_call("try_element_at", each, index.copy()) for each in arrays]
        sizes = ", ".join(f"coalesce(array_size({sql_of(each)}), 0)" for each in arrays)
        rows = f"filter(sequence(0, greatest({sizes})), __n -> __n > 0)"
    special = {
        f"{EXPLODED}_{number}".upper(): Found(value, None, f"{EXPLODED}_{number}")
        for number, value in enumerate(values)
    }
    lateral = f"LATERAL VIEW explode({rows}) {EXPLODED}_rows AS {EXPLODED}"
    return Exploded(tuple(result), special, (lateral,))


def _refuse_map(call: exp.Anonymous, scope: SelectScope) -> None:
    """Spark's explode of a map has two columns."""
    argument = call.expressions[0]
    known = scope.type_of(argument) if isinstance(argument, exp.Column | exp.Dot) else None
    if (known or "").startswith("map"):
        name = sql_of(argument)
        raise SqlError(
            f"EXPLODE takes an array, and {name} is a map. Use EXPLODE(ENTRIES({name}, TRUE)), or"
            f" LATERAL VIEW explode({name}) entry AS k, v.",
            *place_of(call),
        )
