"""Tokens of SQL text, with their places.

Statement heads are read from these tokens; a SELECT is read by sqlglot from a copy of its text in
which everything that only ksqlDB has is blank (`select_parsing.py`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headrace.sql.language.errors import SqlError, Unfinished


class TokenKind(StrEnum):
    """What a token is."""

    WORD = "word"
    """A keyword or a name without quotes."""
    NAME = "name"
    """A name in double quotes or backticks."""
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    VARIABLE = "variable"
    BODY = "body"
    """Text between `$$` and `$$`."""
    END = "end"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A token and its place."""

    kind: TokenKind
    text: str
    """As it was written."""
    value: str
    """Without quotes; of words and symbols the text."""
    start: int
    line: int
    column: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def upper(self) -> str:
        """Keywords are compared without regard to case; quoted text is no keyword."""
        return self.text.upper() if self.kind in (TokenKind.WORD, TokenKind.SYMBOL) else ""

    def error(self, message: str) -> SqlError:
        return SqlError(message, self.line, self.column)

    def __str__(self) -> str:
        return "the end of the statement" if self.kind is TokenKind.END else repr(self.text)


_TOKEN = re.compile(
    r"""
      (?P<skip> \s+ | --[^\r\n]* | /\*.*?\*/ )
    | (?P<string> '(?:[^']|'')*' )
    | (?P<name> "(?:[^"]|"")*" | `(?:[^`]|``)*` )
    | (?P<body> \$\$.*?\$\$ )
    | (?P<variable> \$\{\s*\w+\s*\} )
    | (?P<unfinished> ['"`] | /\* | \$\$ )
    | (?P<number> (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w@]) )
    | (?P<word> [\w@]+ )
    | (?P<symbol> <=>|:=|->|=>|<=|>=|<>|!=|==|\|\||:: | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_UNFINISHED = {
    "'": "The string has no closing quote (').",
    '"': 'The name has no closing quote (").',
    "`": "The name has no closing backtick (`).",
    "/*": "The comment has no end (*/).",
    "$$": "The body has no end ($$).",
}


def tokenize(text: str) -> Iterator[SqlToken]:
    """All tokens but comments, and an END. Raises Unfinished for what is not closed."""
    line, line_start, at = 1, 0, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, "the last alternative matches any character"
        kind, part = found.lastgroup, found.group()
        column = at - line_start + 1
        if kind == "unfinished":
            raise Unfinished(_UNFINISHED[part], line, column)
        if kind != "skip":
            assert kind is not None
            yield SqlToken(TokenKind(kind), part, _value(kind, part), at, line, column)
        if breaks := part.count("\n"):
            line += breaks
            line_start = at + part.rindex("\n") + 1
        at = found.end()
    yield SqlToken(TokenKind.END, "", "", at, line, at - line_start + 1)


def _value(kind: str, text: str) -> str:
    if kind in ("string", "name"):
        quote = text[0]
        return text[1:-1].replace(quote * 2, quote)
    if kind == "body":
        return text[2:-2]
    if kind == "variable":
        return text[2:-1].strip()
    return text
