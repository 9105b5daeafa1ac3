"""Scripts: statements and variables."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sql.language.errors import SqlError, Unfinished
from headrace.sql.language.script import ends_statement, split, substitute

SQL_LIKE = st.lists(
    st.sampled_from(
        [";", "'", "''", '"', "`", "--", "/*", "*/", "$$", "${", "}", "\n", " ", "a", "SELECT", "1"]
    )
    | st.text(max_size=3)
).map("".join)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; ; ", []),
        ("-- nothing\n/* at all */", []),
        ("LIST STREAMS", ["LIST STREAMS"]),
        ("LIST STREAMS;LIST TABLES ; ", ["LIST STREAMS", "LIST TABLES"]),
        ("-- first\nA; -- second; third\nB /* C; */ D;", ["A", "B /* C; */ D"]),
        (
            "INSERT 'a;b', 'it''s;', \"c;d\", `e;f`; G",
            ["INSERT 'a;b', 'it''s;', \"c;d\", `e;f`", "G"],
        ),
        ("CREATE FUNCTION f AS $$x = 1; 'y$$; Z", ["CREATE FUNCTION f AS $$x = 1; 'y$$", "Z"]),
        ("A -- ends here;\nB;", ["A -- ends here;\nB"]),
        ("SELECT '--', '/*' FROM x; B", ["SELECT '--', '/*' FROM x", "B"]),
    ],
)
def test_split(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("SELECT 'abc", 1, 8), ("A;\n  B /* c", 2, 5), ('"x', 1, 1), ("`", 1, 1), ("\n\n$$ y", 3, 1)],
)
def test_what_is_not_closed_is_reported_where_it_begins(text: str, line: int, column: int) -> None:
    with pytest.raises(Unfinished) as raised:
        split(text)
    assert (raised.value.line, raised.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("A;", True),
        ("A; -- x", True),
        ("A", False),
        ("A; B", False),
        ("", False),
        ("';'", False),
    ],
)
def test_a_statement_ends_with_a_semicolon(text: str, ends: bool) -> None:
    assert ends_statement(text) is ends


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT ${a}", "SELECT x"),
        ("SELECT ${ A }, '${a}-${b}', \"${b}\"", "SELECT x, 'x-it', \"it\""),
        ("'${unknown} ${'", "'${unknown} ${'"),
        ("-- ${a}\n$$ ${a} $$", "-- ${a}\n$$ ${a} $$"),
    ],
)
def test_variables_are_replaced(text: str, expected: str) -> None:
    assert substitute(text, {"a": "x", "B": "it"}) == expected


def test_an_unknown_variable_is_named() -> None:
    with pytest.raises(SqlError, match=r"The variable topc is not defined.*Did you mean topic\?"):
        substitute("PRINT ${topc}", {"topic": "t"})


@given(SQL_LIKE)
def test_split_reads_any_text_or_says_what_is_wrong(text: str) -> None:
    try:
        statements = split(text)
    except SqlError:
        return
    assert all(statement.strip() == statement for statement in statements)
    # A statement stays whole if it is split again.
    assert [again for each in statements for again in split(each)] == statements


@given(SQL_LIKE, st.dictionaries(st.text(max_size=2), st.text(max_size=3)))
def test_substitute_raises_nothing_but_sql_errors(text: str, variables: dict[str, str]) -> None:
    with contextlib.suppress(SqlError):
        substitute(text, variables)
