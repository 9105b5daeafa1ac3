"""Queries: SELECT with joins, groups and order, UNION, WITH, and queries in FROM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.sql.records.types import ColumnType
from headrace.sql.views.spark_sql.aggregates import AGGREGATES
from headrace.sql.views.spark_sql.casts import cast
from headrace.sql.views.spark_sql.expressions import Expressions, Scope, ScopeColumn, quoted
from headrace.sql.views.spark_sql.operators import condition
from headrace.sql.views.spark_sql.sqlite_functions import DECIMAL_COLLATION
from headrace.sql.views.spark_sql.typed import (
    NotAnswerable,
    Typed,
    common_type,
)

_CLAUSES = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
     "distinct", "with_", "kind"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table of SQLite that a query can name."""

    sql: str
    """Its name in SQLite, with its schema."""
    columns: Sequence[tuple[str, ColumnType]]


@dataclass(frozen=True, slots=True)
class Translation:
    """A query in SQLite's SQL, and its columns."""

    sql: str
    columns: tuple[tuple[str, ColumnType], ...]
    computed: tuple[bool, ...]
    """Which columns are no plain columns: their numbers may be too large for their types."""


def translate(
    query: exp.Query, tables: Mapping[str, TableColumns], parameters: Mapping[int, str]
) -> Translation:
    """The query over tables, by names in any case. `parameters` has literals that become
    parameters: by the identity of their node. Raises NotAnswerable."""
    known = {name.casefold(): table for name, table in tables.items()}
    return _Queries(parameters).query(query, known, None)


class _Queries:
    """Translates a query and those in it."""

    def __init__(self, parameters: Mapping[int, str]) -> None:
        self._parameters = parameters

    def query(
        self, node: exp.Expr, tables: Mapping[str, TableColumns], outer: Scope | None
    ) -> Translation:
        tables = {**tables, **self._with(node, tables)}
        if isinstance(node, exp.Subquery) and not node.args.get("joins"):
            return self.query(node.this, tables, outer)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, tables, outer)
        if not isinstance(node, exp.Select):
            raise NotAnswerable(f"a view has no {type(node).__name__}")
        return self._select(node, tables, outer)

    def _with(self, node: exp.Expr, tables: Mapping[str, TableColumns]) -> dict[str, TableColumns]:
        """The queries of WITH, each as a query in FROM."""
        found: dict[str, TableColumns] = {}
        clause = node.args.get("with_")
        if clause is None:
            return found
        if clause.args.get("recursive"):
            raise NotAnswerable("WITH RECURSIVE")
        for each in clause.expressions:
            if each.args["alias"].columns:
                raise NotAnswerable("WITH that names columns")
            made = self.query(each.this, {**tables, **found}, None)
            found[each.alias.casefold()] = TableColumns(f"({made.sql})", made.columns)
        return found

    def _set_operation(
        self, node: exp.SetOperation, tables: Mapping[str, TableColumns], outer: Scope | None
    ) -> Translation:
        words = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}
        distinct = node.args.get("distinct")
        if (not distinct and not isinstance(node, exp.Union)) or type(node) not in words:
            raise NotAnswerable("INTERSECT ALL and EXCEPT ALL")
        left, right = (self.query(each, tables, outer) for each in (node.left, node.right))
        if len(left.columns) != len(right.columns):
            raise NotAnswerable("queries with different numbers of columns")
        kinds = [
            common_type([Typed("", a), Typed("", b)], "UNION")
            for (_, a), (_, b) in zip(left.columns, right.columns, strict=True)
        ]
        names = [name for name, _ in left.columns]
        if len(set(names)) < len(names):
            raise NotAnswerable("a query in UNION with two columns of one name")
        word = words[type(node)] + ("" if distinct else " ALL")
        sides = [_converted(side, kinds, names) for side in (left, right)]
        sql = f" {word} ".join(sides)
        columns = tuple(zip(names, kinds, strict=True))
        scope = Scope([ScopeColumn("", name, kind) for name, kind in columns], outer)
        expressions = self._expressions(scope, tables)
        tail = self._tail(node, expressions, columns)
        if tail:
            sql = f"SELECT * FROM ({sql}){tail}"
        return Translation(sql, columns, (True,) * len(columns))

    def _select(
        self, node: exp.Select, tables: Mapping[str, TableColumns], outer: Scope | None
    ) -> Translation:
        unknown = [name for name, value in node.args.items() if value and name not in _CLAUSES]
        if unknown:
            raise NotAnswerable(f"a view has no {unknown[0].rstrip('_').upper()}")
        source, scope = self._from(node, tables, outer)
        expressions = self._expressions(scope, tables)
        where = node.args.get("where")
        texts = [source]
        if where is not None:
            texts.append(f"WHERE {condition(expressions.translate(where.this))}")
        texts += self._grouping(node, expressions, scope)
        items = self._projections(node, expressions, scope)
        having = node.args.get("having")
        if having is not None:
            texts.append(f"HAVING {condition(expressions.translate(having.this))}")
        columns = tuple((name, item.kind) for name, item in items)
        shown = ", ".join(f"{item.sql} AS {quoted(name)}" for name, item in items)
        distinct = self._distinct(node)
        tail = self._tail(node, expressions, columns)
        sql = f"SELECT {distinct}{shown} {' '.join(filter(None, texts))}{tail}"
        plain = {each.typed.sql for each in scope.columns}
        return Translation(sql, columns, tuple(item.sql not in plain for _, item in items))

    def _expressions(self, scope: Scope, tables: Mapping[str, TableColumns]) -> Expressions:
        def subquery(node: exp.Expr, around: Scope) -> tuple[str, Sequence[ColumnType]]:
            made = self.query(node, tables, around)
            return made.sql, [kind for _, kind in made.columns]

        return Expressions(scope, subquery, self._parameters)

    # ------------------------------------------------------------------------------------- FROM

    def _from(
        self, node: exp.Select, tables: Mapping[str, TableColumns], outer: Scope | None
    ) -> tuple[str, Scope]:
        clause = node.args.get("from_")
        if clause is None:
            return "", Scope([], outer)
        sql, columns = self._relation(clause.this, tables)
        texts = [f"FROM {sql}"]
        for join in node.args.get("joins") or ():
            text, more = self._join(join, tables, columns, outer)
            texts.append(text)
            columns = [*columns, *more]
        return " ".join(texts), Scope(columns, outer)

    def _relation(
        self, node: exp.Expr, tables: Mapping[str, TableColumns]
    ) -> tuple[str, list[ScopeColumn]]:
        allowed = {"this", "alias"}
        if any(value and name not in allowed for name, value in node.args.items()):
            raise NotAnswerable("a source in FROM that is more than a name")
        alias = node.alias_or_name
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            table = tables.get(node.name.casefold())
            if table is None:
                raise NotAnswerable(f"there is no view of {node.name}")
        elif isinstance(node, exp.Subquery) and alias:
            made = self.query(node.this, tables, None)
            table = TableColumns(f"({made.sql})", made.columns)
        else:
            raise NotAnswerable("a source in FROM that is no table")
        alias_node = node.args.get("alias")
        if alias_node is not None and alias_node.args.get("columns"):
            raise NotAnswerable("an alias that names columns")
        columns = [ScopeColumn(alias, name, kind) for name, kind in table.columns]
        return f"{table.sql} AS {quoted(alias)}", columns

    def _join(
        self,
        join: exp.Join,
        tables: Mapping[str, TableColumns],
        before: Sequence[ScopeColumn],
        outer: Scope | None,
    ) -> tuple[str, list[ScopeColumn]]:
        side = str(join.args.get("side") or "").upper()
        kind = str(join.args.get("kind") or "").upper()
        if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise NotAnswerable(f"{side} {kind} JOIN".strip())
        if join.args.get("using") or join.args.get("method"):
            raise NotAnswerable("JOIN with USING or NATURAL")
        sql, columns = self._relation(join.this, tables)
        on = join.args.get("on")
        if on is None and (side or kind != "CROSS"):
            raise NotAnswerable("JOIN without a condition")
        word = f"{side} JOIN" if side else "CROSS JOIN" if kind == "CROSS" else "JOIN"
        if on is None:
            return f"{word} {sql}", columns
        scope = Scope([*before, *columns], outer)
        tested = condition(self._expressions(scope, tables).translate(on))
        return f"{word} {sql} ON {tested}", columns

    # --------------------------------------------------------------------- groups, columns, order

    def _grouping(self, node: exp.Select, expressions: Expressions, scope: Scope) -> list[str]:
        group = node.args.get("group")
        if group is None:
            aggregated = [*node.expressions, *filter(None, [node.args.get("having")])]
            if any(map(_has_aggregate, aggregated)):
                scope.groups = frozenset()
            return []
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise NotAnswerable("GROUP BY with ROLLUP, CUBE or GROUPING SETS")
        aliases = {each.alias.casefold(): each.this for each in node.expressions if each.alias}
        texts: list[str] = []
        for each in group.expressions:
            translated = expressions.translate(_named(each, node.expressions, aliases, scope))
            if translated.kind.is_nested or translated.kind.kind == "variant":
                raise NotAnswerable(f"GROUP BY {translated.kind}")
            texts.append(translated.sql)
        scope.groups = frozenset(texts)
        return [f"GROUP BY {', '.join(texts)}"]

    def _projections(
        self, node: exp.Select, expressions: Expressions, scope: Scope
    ) -> list[tuple[str, Typed]]:
        items: list[tuple[str, Typed]] = []
        for each in node.expressions:
            if isinstance(each, exp.Star):
                items += _star(each, scope, None)
            elif isinstance(each, exp.Column) and isinstance(each.this, exp.Star):
                items += _star(each.this, scope, each.table)
            elif not each.alias_or_name:
                raise NotAnswerable("a column without a name")
            else:
                value = each.this if isinstance(each, exp.Alias) else each
                items.append((each.alias_or_name, expressions.translate(value)))
        return items

    def _distinct(self, node: exp.Select) -> str:
        distinct = node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on"):
            raise NotAnswerable("DISTINCT ON")
        return "DISTINCT "

    def _tail(
        self,
        node: exp.Expr,
        expressions: Expressions,
        columns: Sequence[tuple[str, ColumnType]],
    ) -> str:
        """ORDER BY, LIMIT and OFFSET."""
        texts: list[str] = []
        order = node.args.get("order")
        if order is not None:
            by = [self._ordered(each, expressions, columns) for each in order.expressions]
            texts.append(f"ORDER BY {', '.join(by)}")
        limit, offset = (_count(node, name) for name in ("limit", "offset"))
        if limit is not None or offset is not None:
            texts.append(f"LIMIT {-1 if limit is None else limit}")
        if offset is not None:
            texts.append(f"OFFSET {offset}")
        return "".join(f" {text}" for text in texts)

    def _ordered(
        self,
        node: exp.Expr,
        expressions: Expressions,
        columns: Sequence[tuple[str, ColumnType]],
    ) -> str:
        value = _result_column(node.this, columns) or expressions.translate(node.this)
        if value.kind.is_nested or value.kind.kind == "variant":
            raise NotAnswerable(f"ORDER BY {value.kind}")
        collation = f" COLLATE {DECIMAL_COLLATION}" if value.kind.kind == "decimal" else ""
        direction = " DESC" if node.args.get("desc") else ""
        nulls = " NULLS FIRST" if node.args.get("nulls_first") else " NULLS LAST"
        return f"{value.sql}{collation}{direction}{nulls}"


def _converted(side: Translation, kinds: Sequence[ColumnType], names: Sequence[str]) -> str:
    """One side of a UNION, with the types of both."""
    if [kind for _, kind in side.columns] == list(kinds):
        return f"SELECT * FROM ({side.sql})"
    own = [name for name, _ in side.columns]
    if len(set(own)) < len(own):
        raise NotAnswerable("a query in UNION with two columns of one name")
    shown = ", ".join(
        f"{cast(Typed(quoted(name), given), kind).sql} AS {quoted(other)}"
        for (name, given), kind, other in zip(side.columns, kinds, names, strict=True)
    )
    return f"SELECT {shown} FROM ({side.sql})"


def _named(
    node: exp.Expr,
    projections: Sequence[exp.Expr],
    aliases: Mapping[str, exp.Expr],
    scope: Scope,
) -> exp.Expr:
    """What GROUP BY means by a number or by the alias of a column."""
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.name) if node.name.isdecimal() else 0
        if not 1 <= place <= len(projections):
            raise NotAnswerable(f"GROUP BY {node.name}")
        found = projections[place - 1]
        return found.this if isinstance(found, exp.Alias) else found
    if isinstance(node, exp.Column) and not node.table and scope.find([node.name]) is None:
        return aliases.get(node.name.casefold(), node)
    return node


def _result_column(node: exp.Expr, columns: Sequence[tuple[str, ColumnType]]) -> Typed | None:
    """A column of the result that ORDER BY names, or counts."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
        place = int(node.name)
        if not 1 <= place <= len(columns):
            raise NotAnswerable(f"ORDER BY {node.name}")
        return Typed(str(place), columns[place - 1][1])
    if isinstance(node, exp.Column) and not node.table:
        found = [each for each in columns if each[0].casefold() == node.name.casefold()]
        if len(found) == 1:
            return Typed(quoted(found[0][0]), found[0][1])
    return None


def _star(star: exp.Star, scope: Scope, relation: str | None) -> list[tuple[str, Typed]]:
    if any(star.args.get(name) for name in ("except_", "except", "replace", "rename")):
        raise NotAnswerable("* with EXCEPT")
    if scope.groups is not None:
        raise NotAnswerable("* with GROUP BY")
    return [
        (each.name, each.typed)
        for each in scope.columns
        if relation is None or each.relation.casefold() == relation.casefold()
    ]


def _count(node: exp.Expr, clause: str) -> int | None:
    found = node.args.get(clause)
    if found is None:
        return None
    literal = found.expression
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.name.isdecimal():
        raise NotAnswerable(f"{clause.upper()} that is no number")
    return int(literal.name)


def _has_aggregate(node: exp.Expr) -> bool:
    return any(
        isinstance(each, exp.Anonymous) and str(each.this).lower() in AGGREGATES
        for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query))
    )
