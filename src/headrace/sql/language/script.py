"""Scripts: their statements, and the variables in them."""

from collections.abc import Mapping

from headrace.sql.language.errors import did_you_mean
from headrace.sql.language.grammar.tokens import SqlToken, TokenKind, tokenize


def split(text: str) -> list[str]:
    """The statements of a script, without semicolons and without the comments between them.

    Semicolons in strings, quoted names, comments and `$$` bodies separate nothing. The last
    statement needs no semicolon.
    """
    statements, first, last = [], None, None
    for token in tokenize(text):
        if token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.text == ";"):
            if first is not None and last is not None:
                statements.append(text[first.start : last.end])
            first = last = None
        else:
            first, last = first or token, token
    return statements


def ends_statement(text: str) -> bool:
    """Whether the text ends with a semicolon: a prompt runs it, or else reads another line."""
    last: SqlToken | None = None
    for token in tokenize(text):
        if token.kind is not TokenKind.END:
            last = token
    return last is not None and last.text == ";"


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """The text with `${name}` replaced by the variable's value; names have no case.

    Variables are replaced everywhere but in comments and `$$` bodies: in strings as well, as in
    `'${topic}'`.
    """
    known = {name.casefold(): value for name, value in variables.items()}
    parts, at = [], 0
    for token in tokenize(text):
        if token.kind is TokenKind.VARIABLE:
            replaced = _lookup(token, token.value, known)
        elif token.kind in (TokenKind.STRING, TokenKind.NAME) and "${" in token.text:
            replaced = _in_quotes(token, known)
        else:
            continue
        parts += [text[at : token.start], replaced]
        at = token.end
    return "".join([*parts, text[at:]])


def _lookup(token: SqlToken, name: str, known: Mapping[str, str]) -> str:
    value = known.get(name.casefold())
    if value is None:
        raise token.error(
            f"The variable {name} is not defined. Define it: DEFINE {name} = 'value';"
            + did_you_mean(name, known)
        )
    return value


def _in_quotes(token: SqlToken, known: Mapping[str, str]) -> str:
    """A quoted string keeps what looks like a variable and is none."""
    parts = token.text.split("${")
    replaced = [parts[0]]
    for part in parts[1:]:
        name, brace, rest = part.partition("}")
        value = known.get(name.strip().casefold()) if brace else None
        replaced.append("${" + part if value is None else value + rest)
    return "".join(replaced)
