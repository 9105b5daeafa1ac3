"""What users ask about the dead letters of a connector, between the service and its host."""

from dataclasses import dataclass

MOST_RECORDS = 1000
"""How many dead letters or groups one response shows at most."""


class LettersRefused(Exception):
    """A request about dead letters that cannot be carried out; the message says why."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class LetterView:
    """A look at dead letters that wait."""

    what: str
    """`groups`, by error, or `records`."""
    where: str = ""
    """A condition in Spark SQL; empty for all."""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class LetterOrder:
    """A replay, or a discard, of the dead letters that wait."""

    action: str
    """`replay` or `discard`."""
    where: str = ""
    limit: int | None = None
    """How many of those that match are taken, in the order of the topic; None for all."""
    dry_run: bool = False

    def described(self) -> str:
        """For messages."""
        parts = [f"where {self.where}" if self.where else "", f"limit {self.limit or ''}"]
        words = [each for each in parts if each and each != "limit "]
        return f"{self.action} {' '.join(words)}".strip()


def letter_group(name: str) -> str:
    """The consumer group whose offsets are the progress through a connector's dead letters."""
    return f"connect-{name}-dlq"
