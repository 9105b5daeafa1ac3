"""Principals from client certificates, by `ssl.principal.mapping.rules`.

A rule is `RULE:pattern/replacement/` with an optional L or U (lower or upper case) at its end, or
DEFAULT, which takes the name as it is. The first rule whose pattern matches the whole distinguished
name decides.
"""

import re
from typing import NamedTuple

from headrace.errors import SettingError

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client without authentication."""

_SETTING = "ssl.principal.mapping.rules"
_RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)"
)
_BACK_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """The pattern; None for DEFAULT."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Kafka, every match is replaced: `.*` matches a name, and then its empty rest.
        result = self.pattern.sub(lambda match: expanded(self.replacement, match), name)
        return in_case(result, self.case)


def in_case(name: str, case: str) -> str:
    """A name in lower case (L) or upper case (U), or as it is."""
    if case == "L":
        return name.lower()
    return name.upper() if case == "U" else name


def expanded(replacement: str, match: re.Match[str]) -> str:
    """What a replacement in Java's syntax stands for: `$1` is a group, `\\x` is x."""
    return _BACK_REFERENCE.sub(lambda found: _replaced(found, match), replacement)


def _replaced(found: re.Match[str], match: re.Match[str]) -> str:
    """The replacement of `$12` or `\\x`. As in Java, `$12` is group 1 and "2" without group 12."""
    if found[1]:
        return found[1]
    digits = found[2]
    groups = match.re.groups
    if int(digits[0]) > groups:
        return found[0]
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= groups:
        used += 1
    return (match[int(digits[:used])] or "") + digits[used:]


class PrincipalRules:
    """The parsed rules of one listener."""

    def __init__(self, text: str) -> None:
        """SettingError if a rule is malformed."""
        self._rules = []
        text = text.strip()
        at = 0
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise SettingError(
                    f"{_SETTING}={text}: {text[at:]!r} is not a rule; expected DEFAULT or "
                    "RULE:pattern/replacement/ with L or U at its end"
                )
            self._rules.append(_rule(found))
            at = found.end()

    def principal(self, distinguished_name: str) -> str | None:
        """The principal of a certificate's subject; None if no rule matches."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return f"User:{name}"
        return None


def _rule(found: re.Match[str]) -> _Rule:
    if found[1]:
        return _Rule(None, "", "")
    try:
        return _Rule(re.compile(found[2]), found[3], found[4])
    except re.error as error:
        raise SettingError(
            f"{_SETTING}: {found[2]!r} is not a regular expression: {error}"
        ) from error
