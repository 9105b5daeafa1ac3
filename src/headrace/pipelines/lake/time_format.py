"""Path formats of time-based partitions, such as `'year'=YYYY/'month'=MM/'day'=dd`.

They are those of Joda-Time, as Confluent's connectors use them. Only what has a counterpart in
strftime is accepted.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")
_PATTERNS = {
    "YYYY": "%Y",
    "yyyy": "%Y",
    "YY": "%y",
    "yy": "%y",
    "xxxx": "%G",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "ww": "%V",
    "DDD": "%j",
    "dd": "%d",
    "EEE": "%a",
    "EEEE": "%A",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "a": "%p",
}
_NAMES = ("%b", "%B", "%a", "%A", "%p")


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A path format as patterns of strftime, one for each folder."""

    segments: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of partition columns: what is before `=` in a segment."""
        return tuple(each.partition("=")[0] for each in self.segments if "=" in each)

    @property
    def is_named(self) -> bool:
        """Whether every folder is a partition column."""
        return len(self.keys) == len(self.segments)

    @property
    def has_names(self) -> bool:
        """Whether names of months, days or half days are in it, which differ by language."""
        return any(name in segment for segment in self.segments for name in _NAMES)

    @property
    def absent(self) -> str:
        """The folders of rows without a time."""
        return "/".join(
            f"{each.partition('=')[0]}={NO_VALUE}" if "=" in each else NO_VALUE
            for each in self.segments
        )


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of Hive and Spark for a value that is null."""


def parse(text: str) -> TimeFormat:
    """ValueError says which part of the format is not supported."""
    found = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"the quote at position {at} of {text} is not closed")
        quoted, letter, other = token.groups()
        if letter:
            if token[0] not in _PATTERNS:
                known = ", ".join(_PATTERNS)
                raise ValueError(f"{token[0]} in {text} is not supported; expected one of {known}")
            found.append(_PATTERNS[token[0]])
        else:
            literal = other or quoted.replace("''", "'") or "'"
            found.append(literal.replace("%", "%%"))
        at = token.end()
    segments = "".join(found).strip("/").split("/")
    if "" in segments:
        raise ValueError(f"a folder in {text!r} has no name")
    if any(each.startswith(("_", ".")) or each == ".." for each in segments):
        raise ValueError(f"a folder in {text!r} begins with a character that readers skip")
    return TimeFormat(tuple(segments))
