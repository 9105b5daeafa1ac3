"""Reads a statement token by token; the parsers of statement heads use it."""

from headrace.sql.language.errors import did_you_mean
from headrace.sql.language.grammar.tokens import SqlToken, TokenKind, tokenize

RESERVED = frozenset(
    {
        "SELECT", "FROM", "AS", "ALL", "DISTINCT", "WHERE", "WITHIN", "WINDOW", "GROUP", "BY",
        "HAVING", "LIMIT", "AT", "OR", "AND", "IN", "NOT", "EXISTS", "BETWEEN", "LIKE", "IS",
        "NULL", "TRUE", "FALSE", "CASE", "WHEN", "THEN", "ELSE", "END", "JOIN", "FULL", "OUTER",
        "INNER", "LEFT", "RIGHT", "ON", "WITH", "VALUES", "CREATE", "TABLE", "TOPIC", "STREAM",
        "STREAMS", "INSERT", "DELETE", "INTO", "DESCRIBE", "EXTENDED", "PRINT", "CAST", "LIST",
        "TERMINATE", "PAUSE", "RESUME", "DROP", "TO", "BEGINNING", "UNSET", "RUN",
    }
)  # fmt: skip
"""Words that are no names unless they are quoted."""
DURATIONS_MS = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}


class TokenReader:
    """A position in the tokens of a statement."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(tokenize(text))
        self.at = 0

    @property
    def current(self) -> SqlToken:
        return self.tokens[self.at]

    def next(self) -> SqlToken:
        token = self.current
        if token.kind is not TokenKind.END:
            self.at += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these keywords or symbols."""
        following = self.tokens[self.at : self.at + len(words)]
        return [token.upper for token in following] == list(words)

    def accept(self, *words: str) -> bool:
        """Skips these keywords if they follow."""
        found = self.sees(*words)
        if found:
            self.at += len(words)
        return found

    def accept_any(self, *words: str) -> str | None:
        """The one of these keywords that follows, skipped."""
        found = next((word for word in words if self.sees(word)), None)
        if found:
            self.at += 1
        return found

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.unexpected(word)

    def expect_any(self, *words: str) -> str:
        found = self.accept_any(*words)
        if found is None:
            meant = did_you_mean(self.current.text, words) if self.current.upper else ""
            *others, last = words
            expected = f"{', '.join(others)} or {last}" if others else last
            raise self.current.error(f"Expected {expected}, found {self.current}.{meant}")
        return found

    def unexpected(self, expected: str) -> Exception:
        return self.current.error(f"Expected {expected}, found {self.current}.")

    def is_name(self) -> bool:
        token = self.current
        return token.kind is TokenKind.NAME or (
            token.kind is TokenKind.WORD and token.upper not in RESERVED
        )

    def name(self, of: str) -> str:
        """A name, quoted or not, as it was written."""
        if not self.is_name():
            quote = " Put reserved words in backticks." if self.current.upper in RESERVED else ""
            raise self.current.error(f"Expected {of}, found {self.current}.{quote}")
        token = self.current
        if not token.value:
            raise token.error("A name cannot be empty.")
        return self.next().value

    def name_or_string(self, of: str) -> str:
        if self.current.kind is TokenKind.STRING:
            return self.next().value
        return self.name(of)

    def string(self, of: str) -> str:
        if self.current.kind is not TokenKind.STRING:
            raise self.unexpected(f"{of} in single quotes")
        return self.next().value

    def integer(self, of: str) -> int:
        token = self.current
        if token.kind is not TokenKind.NUMBER or not token.value.isdecimal():
            raise self.unexpected(f"{of} (a whole number)")
        if len(token.value) > 18:
            raise token.error(f"{token.value} is too large for {of}.")
        return int(self.next().value)

    def duration_ms(self, of: str) -> int:
        """A number and a unit: `10 MINUTES`."""
        count = self.integer(of)
        unit = self.current.upper
        size = DURATIONS_MS.get(unit.removesuffix("S"))
        if size is None:
            raise self.unexpected("DAYS, HOURS, MINUTES, SECONDS or MILLISECONDS")
        self.next()
        return count * size

    def end(self) -> None:
        """Nothing follows but semicolons."""
        while self.accept(";"):
            pass
        if self.current.kind is not TokenKind.END:
            raise self.current.error(f"{self.current} does not belong to the statement.")
