"""The user's name of a Kerberos principal, by `sasl.kerberos.principal.to.local.rules`.

A rule is DEFAULT, which takes the first part of a principal in the default realm, or
`RULE:[n:format](pattern)s/from/to/g/L`: it is for principals with n parts before the realm, builds
a text from them (`$1`, `$2`, and `$0` for the realm), needs the pattern to match the whole text,
and substitutes. The first rule that applies decides.

The patterns are Python's, so an expensive one can take long. They come from the broker's settings,
and names are short and certified by the KDC: a client cannot choose either.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from headrace.errors import SettingError
from headrace.security.logins import LoginRefused
from headrace.security.principals import expanded, in_case

RULES_SETTING = "sasl.kerberos.principal.to.local.rules"
LONGEST_PRINCIPAL = 1024
_PRINCIPAL = re.compile(r"([^/@\\]+)(?:/([^/@\\]+))?@([^/@\\]+)")
_ANONYMOUS = "WELLKNOWN"
"""The first part of anonymous names (RFC 6111, RFC 8062)."""
_RULE = re.compile(
    r"RULE:\[(?P<parts>[0-9]+):(?P<format>[^\]]*)\]"
    r"(?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_REFERENCE = re.compile(r"\\(.?)|\$([0-9]?)", re.DOTALL)
_NOT_SIMPLE = re.compile("[/@]")


class Principal(NamedTuple):
    """A user or a service of a KDC."""

    realm: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'/'.join(self.parts)}@{self.realm}"


def parse_principal(text: str) -> Principal:
    """The principal `name@REALM` or `name/host@REALM`; LoginRefused for others.

    A name with `\\\\` is refused: it quotes a character that would otherwise divide the name.
    """
    match = _PRINCIPAL.fullmatch(text) if len(text) <= LONGEST_PRINCIPAL else None
    if match is None:
        raise LoginRefused(f"{text[:100]!r} is not name@REALM or name/host@REALM")
    if match[1] == _ANONYMOUS:
        raise LoginRefused(f"{text!r} is an anonymous principal")
    return Principal(match[3], (match[1],) if match[2] is None else (match[1], match[2]))


class _Default(NamedTuple):
    """The rule DEFAULT."""

    realm: str

    def apply(self, principal: Principal) -> str | None:
        return principal.parts[0] if principal.realm == self.realm else None


class _Rule(NamedTuple):
    text: str
    parts: int
    format: str
    pattern: re.Pattern[str] | None
    old: re.Pattern[str] | None
    new: str
    most: int
    """The number of replaced matches; 0 for all."""
    case: str

    def apply(self, principal: Principal) -> str | None:
        if len(principal.parts) != self.parts:
            return None
        values = (principal.realm, *principal.parts)
        name = _PARAMETER.sub(lambda found: values[int(found[1])], self.format)
        if self.pattern is not None and self.pattern.fullmatch(name) is None:
            return None
        if self.old is not None:
            name = self.old.sub(lambda match: expanded(self.new, match), name, count=self.most)
        if _NOT_SIMPLE.search(name):
            raise LoginRefused(f"{self.text} maps {principal} to {name!r}, which has / or @")
        return in_case(name, self.case)


_AnyRule: TypeAlias = _Default | _Rule


class KerberosRules:
    """The parsed rules of one listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """SettingError if a rule is malformed."""
        self._rules: list[_AnyRule] = [
            _Default(default_realm) if text == "DEFAULT" else _parse(text) for text in rules
        ]

    def username(self, principal: str) -> str:
        """The name of a principal by the first matching rule; LoginRefused without one."""
        parsed = parse_principal(principal)
        for rule in self._rules:
            name = rule.apply(parsed)
            if name is not None:
                if not name:
                    break
                return name
        raise LoginRefused(f"no rule of {RULES_SETTING} matches the principal {principal!r}")


def _parse(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise _wrong(text, "expected DEFAULT or RULE:[n:format](pattern)s/from/to/g/L")
    parts = int(found["parts"])
    for number in _PARAMETER.findall(found["format"]):
        if not number or int(number) > parts:
            raise _wrong(text, f"its format has ${number}; expected $0 to ${parts}")
    pattern, old = (_compiled(text, found[name]) for name in ("pattern", "old"))
    new = found["new"] or ""
    for escaped, group in _REFERENCE.findall(new):
        if old is not None and not escaped and (not group or int(group) > old.groups):
            raise _wrong(
                text, rf"in {new!r}, $ needs the number of a group (\$ is the sign itself)"
            )
    most = 0 if found["all"] else 1
    return _Rule(text, parts, found["format"], pattern, old, new, most, found["case"] or "")


def _compiled(text: str, pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise _wrong(text, f"{pattern!r} is not a regular expression: {error}") from error


def _wrong(rule: str, why: str) -> SettingError:
    return SettingError(f"{RULES_SETTING}: {rule} is not a rule; {why}")
