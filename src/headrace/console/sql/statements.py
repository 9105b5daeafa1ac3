"""What a statement is: which role it needs, and what of it the audit log may have.

The console asks the SQL server with credentials of its own, so it decides itself what a user may
send. It knows statements by their first words only; all that it does not know is a change.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from headrace.service.errors import HttpError

MOST_CHARACTERS = 100_000


class StatementKind(StrEnum):
    """What a statement does."""

    SESSION = "session"
    """Holds for the statements that follow in the same request."""
    READ = "read"
    """Changes nothing; its results are metadata."""
    QUERY = "query"
    """Returns rows."""
    CHANGE = "change"
    CODE = "code"
    """Its code runs in the server."""


_KINDS = {
    **dict.fromkeys(("SET", "UNSET", "DEFINE", "UNDEFINE"), StatementKind.SESSION),
    **dict.fromkeys(("LIST", "SHOW", "DESCRIBE", "EXPLAIN"), StatementKind.READ),
    **dict.fromkeys(("SELECT", "WITH", "PRINT"), StatementKind.QUERY),
}
_CODE = re.compile(r"CREATE (OR REPLACE )?FUNCTION|ALTER SYSTEM")
_TOKEN = re.compile(
    r"""
      (?P<skip> \s+ | --[^\r\n]* | /\*.*?\*/ )
    | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \$\$.*?\$\$ )
    | (?P<unfinished> ['"`] | /\* | \$\$ )
    | (?P<word> [\w@]+ )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
"""The tokens of the SQL server, as far as they decide where a statement ends."""


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """One statement."""

    text: str
    """Without a semicolon."""
    kind: StatementKind
    is_endless: bool
    """Whether it returns rows until it is ended."""
    reads_records: bool
    """Whether it can copy contents of records: a query, or the query of a stream or table."""
    shown: str
    """What the audit log has: no values of rows, no settings of connectors, no code."""


def read_statement(text: str) -> SqlStatement:
    """The one statement of a text; HttpError 400 if there is none, or more than one."""
    tokens = _tokens(text)
    if tokens and tokens[-1].group() == ";":
        tokens.pop()
    if not tokens:
        raise HttpError(400, "The text has no statement")
    if any(each.group() == ";" for each in tokens):
        raise HttpError(400, "The text has more than one statement")
    start, end = tokens[0].start(), tokens[-1].end()
    words = [each.group().upper() if each.lastgroup == "word" else "" for each in tokens]
    head = next((word for word in words if word), "")
    begins_with_word = all(each.group() == "(" for each in tokens[: words.index(head)])
    kind = _KINDS.get(head, StatementKind.CHANGE) if begins_with_word else StatementKind.CHANGE
    if _CODE.match(" ".join(words[:4])):
        kind = StatementKind.CODE
    return SqlStatement(
        text[start:end],
        kind,
        is_endless=head == "PRINT" or "EMIT" in words,
        reads_records="SELECT" in words or "PRINT" in words,
        shown=text[start : _shown_end(tokens, words)],
    )


def quoted_name(name: str) -> str:
    """A name in a statement. It may have any characters."""
    return "`" + name.replace("`", "``") + "`"


def _tokens(text: str) -> list[re.Match[str]]:
    if len(text) > MOST_CHARACTERS:
        raise HttpError(400, f"A statement may have {MOST_CHARACTERS} characters")
    found = [each for each in _TOKEN.finditer(text) if each.lastgroup != "skip"]
    if any(each.lastgroup == "unfinished" for each in found):
        raise HttpError(400, "A quote or a comment of the statement is not closed")
    return found


def _shown_end(tokens: list[re.Match[str]], words: list[str]) -> int:
    """Where the part begins that the audit log must not have."""
    hidden_from = ""
    if words[0] == "INSERT":
        hidden_from = "VALUES"
    elif words[0] == "CREATE" and "CONNECTOR" in words[:6]:
        hidden_from = "WITH"
    for token, word in zip(tokens, words, strict=True):
        if (hidden_from and word == hidden_from) or token.group().startswith("$$"):
            return token.end() if word else token.start()
    return tokens[-1].end()
