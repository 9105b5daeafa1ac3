"""Reads SELECTs.

What only ksqlDB has (WINDOW, WITHIN, PARTITION BY, EMIT) is read here. sqlglot gets a copy of the
statement in which these clauses, comments and the statement's head are blank, so that the places in
its errors are those of the statement.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from headrace.sql.language.datatypes import NO_TYPES
from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import read_query
from headrace.sql.language.grammar.reading import TokenReader
from headrace.sql.language.grammar.tokens import SqlToken, TokenKind
from headrace.sql.language.select import JoinClause, Select, SourceRef, Within, flattened
from headrace.sql.sources import Window

MAX_DEPTH = 100
WINDOW_KINDS = ("TUMBLING", "HOPPING", "SESSION")
AFTER_PARTITION_BY = ("HAVING", "EMIT", "LIMIT", "GROUP", "WHERE", "WINDOW", "ORDER", ";")
LAMBDA_ARGUMENTS = {
    "TRANSFORM": 1,
    "FILTER": 1,
    "REDUCE": 2,
    "AGGREGATE": 2,
    "EXISTS": 1,
    "FORALL": 1,
    "ANY_MATCH": 1,
    "ARRAY_SORT": 1,
    "ZIP_WITH": 2,
    "MAP_FILTER": 1,
    "MAP_ZIP_WITH": 2,
    "TRANSFORM_KEYS": 1,
    "TRANSFORM_VALUES": 1,
}
"""Functions that take lambdas, and the first argument that can be one."""


@dataclass(slots=True)
class _Call:
    """An open parenthesis, and the function before it."""

    function: str
    opened_at: int
    argument: int = 0


class _Clauses:
    """Splits the tokens of a SELECT into ksqlDB's clauses and the text for sqlglot."""

    def __init__(self, reader: TokenReader) -> None:
        self.reader = reader
        self.text = ["\n" if each == "\n" else " " for each in reader.text]
        self.calls: list[_Call] = []
        self.closed: dict[int, int] = {}
        """Closing parentheses and their opening ones, by token."""
        self.joins = 0
        self.withins: dict[int, Within] = {}
        self.window: Window | None = None
        self.partition_by: str | None = None
        self.emit: str | None = None

    def read(self) -> None:
        reader = self.reader
        while reader.current.kind is not TokenKind.END and not self._ends():
            if self.calls or not self._clause():
                self._copy(reader.current)
                reader.next()
        if self.calls:
            opening = reader.tokens[self.calls[-1].opened_at]
            raise opening.error("The parenthesis has no closing one.")

    def _ends(self) -> bool:
        return not self.calls and self.reader.sees(";")

    def _clause(self) -> bool:
        """Reads one of ksqlDB's clauses, if one follows."""
        reader = self.reader
        first = reader.current
        if reader.sees("EMIT", "CHANGES") or reader.sees("EMIT", "FINAL"):
            self._once(self.emit, "EMIT")
            self.emit = reader.tokens[reader.at + 1].upper
            reader.at += 2
        elif first.upper == "WINDOW" and self._window_follows():
            self._once(self.window, "WINDOW")
            self.window = read_window(reader)
        elif reader.accept("WITHIN"):
            if not self.joins or self.joins - 1 in self.withins:
                raise first.error("WITHIN belongs between the source of a JOIN and ON.")
            self.withins[self.joins - 1] = read_within(reader)
        elif reader.accept("PARTITION", "BY"):
            self._once(self.partition_by, "PARTITION BY")
            self.partition_by = self._list(first)
        else:
            self.joins += first.upper == "JOIN"
            return False
        return True

    def _once(self, found: object, clause: str) -> None:
        if found is not None:
            raise self.reader.current.error(f"{clause} is there twice.")

    def _window_follows(self) -> bool:
        following = self.reader.tokens[self.reader.at + 1 : self.reader.at + 3]
        return any(token.upper in WINDOW_KINDS for token in following)

    def _list(self, first: SqlToken) -> str:
        """The expressions of PARTITION BY, as the text of a SELECT at the same place."""
        others, self.text = self.text, ["\n" if each == "\n" else " " for each in self.text]
        self.text[first.start : first.start + 6] = "SELECT"
        reader = self.reader
        while reader.current.kind is not TokenKind.END:
            if not self.calls and reader.current.upper in AFTER_PARTITION_BY:
                break
            self._copy(reader.current)
            reader.next()
        expressions, self.text = "".join(self.text), others
        return expressions

    def _copy(self, token: SqlToken) -> None:
        """Puts a token into the text for sqlglot, at its place."""
        at, written = self.reader.at, token.text
        if token.kind is TokenKind.VARIABLE:
            raise token.error(f"The variable {token.value} is not defined.")
        if token.kind is TokenKind.BODY:
            raise token.error("A SELECT has no $$ body.")
        match token.upper:
            case "(" | "[":
                self._open(at)
            case ")" | "]":
                self._close(token, at)
            case ",":
                if self.calls:
                    self.calls[-1].argument += 1
            case "=>":
                written = "->"
            case "->" if not self._is_lambda(at):
                written = " ."
        self.text[token.start : token.end] = written

    def _open(self, at: int) -> None:
        if len(self.calls) == MAX_DEPTH:
            raise self.reader.current.error(
                f"The expression is nested more than {MAX_DEPTH} levels deep."
            )
        self.calls.append(_Call(self.reader.tokens[at - 1].upper if at else "", at))

    def _close(self, token: SqlToken, at: int) -> None:
        if not self.calls:
            raise token.error(f"{token.text!r} closes nothing.")
        self.closed[at] = self.calls.pop().opened_at

    def _is_lambda(self, at: int) -> bool:
        """Whether `->` is Spark's arrow of a lambda, and not an access to a field."""
        if not self.calls:
            return False
        call = self.calls[-1]
        first = LAMBDA_ARGUMENTS.get(call.function)
        if first is None or call.argument < first:
            return False
        opening = self.closed.get(at - 1, at - 1)
        return self.reader.tokens[opening - 1].text == ","


def read_window(reader: TokenReader) -> Window:
    """`WINDOW [name] TUMBLING|HOPPING|SESSION (...)`."""
    reader.expect("WINDOW")
    if reader.current.upper not in WINDOW_KINDS:
        reader.next()
    kind = reader.expect_any(*WINDOW_KINDS)
    reader.expect("(")
    place = reader.current
    if kind != "SESSION":
        reader.expect("SIZE")
    size = reader.duration_ms("the gap of the session" if kind == "SESSION" else "the size")
    advance = None
    if kind == "HOPPING":
        reader.expect(",")
        reader.expect("ADVANCE", "BY")
        advance = reader.duration_ms("the advance")
    retention = grace = None
    while reader.accept(","):
        if reader.expect_any("RETENTION", "GRACE") == "RETENTION":
            retention = reader.duration_ms("the retention")
        else:
            reader.expect("PERIOD")
            grace = reader.duration_ms("the grace period")
    reader.expect(")")
    if size == 0:
        raise place.error("The size of a window is at least 1 MILLISECOND.")
    if advance is not None and not 0 < advance <= size:
        raise place.error("ADVANCE BY is at least 1 MILLISECOND and at most the SIZE.")
    if retention is not None and retention < size + (grace or 0):
        raise place.error("RETENTION is at least the SIZE and the GRACE PERIOD together.")
    return Window(kind, size, advance, grace, retention)


def read_within(reader: TokenReader) -> Within:
    """After WITHIN: `d` or `(before, after)`, and `[GRACE PERIOD d]`."""
    if reader.accept("("):
        before = reader.duration_ms("how much earlier rows may be")
        reader.expect(",")
        after = reader.duration_ms("how much later rows may be")
        reader.expect(")")
    else:
        before = after = reader.duration_ms("how far rows may be apart")
    grace = None
    if reader.accept("GRACE"):
        reader.expect("PERIOD")
        grace = reader.duration_ms("the grace period")
    return Within(before, after, grace)


def read_select(reader: TokenReader, types: Mapping[str, str] = NO_TYPES) -> Select:
    """The SELECT that follows; the reader is at its end then."""
    start = reader.current
    if start.upper not in ("SELECT", "WITH", "("):
        raise reader.unexpected("SELECT")
    clauses = _Clauses(reader)
    clauses.read()
    query = read_query("".join(clauses.text), types)
    if not query.selects:
        raise start.error("The SELECT has no columns.")
    only_pull = _only_pull(query)
    first, joins = (None, ()) if only_pull else _sources(query, clauses.withins)
    partition_by = None
    if clauses.partition_by is not None:
        partition_by = flattened(read_query(clauses.partition_by, types).selects)
    return Select(
        text=reader.text[start.start : reader.tokens[reader.at - 1].end],
        expression=query,
        first=first,
        joins=joins,
        partition_by=partition_by,
        window=clauses.window,
        emit=clauses.emit,
        limit=_limit(query),
        only_pull=only_pull,
    )


def read_values(reader: TokenReader, types: Mapping[str, str] = NO_TYPES) -> tuple[exp.Expr, ...]:
    """`VALUES (...)`: the expressions of one row."""
    first = reader.current
    reader.expect("VALUES")
    if not reader.sees("("):
        raise reader.unexpected("(")
    clauses = _Clauses(reader)
    clauses.text[first.start : first.end] = "SELECT"
    clauses.read()
    found = read_query("".join(clauses.text), types).selects
    if len(found) != 1 or not isinstance(found[0], exp.Tuple | exp.Paren):
        raise first.error("INSERT INTO ... VALUES takes one row: VALUES (1, 'a').")
    return flattened(found)


def place_of(node: exp.Expr) -> tuple[int | None, int | None]:
    """Line and column of an expression: those of its first name."""
    places = [each.meta for each in node.walk() if "line" in each.meta]
    if not places:
        return None, None
    first = min(places, key=lambda place: int(place["start"]))
    return first["line"], max(1, first["col"] - (first["end"] - first["start"]))


_CLAUSES_OF_PULL = {
    "with_": "WITH",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "distinct": "DISTINCT",
    "qualify": "QUALIFY",
    "offset": "OFFSET",
    "windows": "WINDOW",
}


def _only_pull(query: exp.Query) -> str | None:
    """Why the query cannot run continuously; see `Select.only_pull`."""
    if not isinstance(query, exp.Select):
        return "A query that runs continuously is one SELECT: UNION needs INSERT INTO ... SELECT."
    for clause, name in _CLAUSES_OF_PULL.items():
        if query.args.get(clause):
            other = " Use GROUP BY." if clause == "distinct" else ""
            return f"{name} is only for pull queries (without EMIT).{other}"
    if query.find(exp.Window):
        return "OVER (...) is only for pull queries (without EMIT). Use WINDOW and GROUP BY."
    if any(each is not query for each in query.find_all(exp.Query)):
        return (
            "A query that runs continuously has no subqueries. Create a stream or table for the"
            " inner query, and select from it."
        )
    source = query.args.get("from_")
    if source is None:
        return "A query that runs continuously needs FROM."
    tables = [source.this, *(join.this for join in query.args.get("joins") or ())]
    if not all(isinstance(each, exp.Table) and _is_name(each) for each in tables):
        return "FROM and JOIN of a query that runs continuously take names of streams and tables."
    return _odd_join(query)


def _is_name(table: exp.Table) -> bool:
    return isinstance(table.this, exp.Identifier) and not table.args.get("db")


def _odd_join(query: exp.Select) -> str | None:
    for join in query.args.get("joins") or ():
        method, kind = (str(join.args.get(each) or "") for each in ("method", "kind"))
        if method or kind not in ("", "INNER", "OUTER") or join.args.get("using"):
            return (
                "JOINs of a query that runs continuously are [INNER], LEFT, RIGHT and FULL JOIN,"
                " with ON."
            )
    return None


def _sources(
    query: exp.Query, withins: dict[int, Within]
) -> tuple[SourceRef, tuple[JoinClause, ...]]:
    joins = tuple(
        JoinClause(
            str(join.args.get("side") or "INNER"),
            _source(join.this),
            join.args.get("on"),
            withins.get(index),
        )
        for index, join in enumerate(query.args.get("joins") or ())
    )
    return _source(query.args["from_"].this), joins


def _source(table: exp.Table) -> SourceRef:
    return SourceRef(table.name, table.alias or table.name, *place_of(table))


def _limit(query: exp.Query) -> int | None:
    limit = query.args.get("limit")
    if limit is None:
        return None
    count = limit.expression
    if not isinstance(count, exp.Literal) or not count.name.isdecimal():
        raise SqlError("LIMIT takes a whole number.")
    return int(count.name)
