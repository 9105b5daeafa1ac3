"""Settings of connectors without their secrets, and the secrets back when a form is submitted."""

import re
from collections.abc import Collection, Mapping

HIDDEN = "[hidden]"
PASSWORD_TYPE = "PASSWORD"

_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|jaas|user\.info|"
    r"(api|access|private|account|shared|ssl|encryption)[._-]?key",
    re.IGNORECASE,
)
"""Settings of converters, transformations and clients are not among a plug-in's definitions."""
_REFERENCE = re.compile(r"\$\{[^}]*\}")
"""Of a config provider (KIP-297); it names a secret and does not contain it."""
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


def hidden(configs: Mapping[str, str], passwords: Collection[str]) -> dict[str, str]:
    """The settings as a browser may see them. `passwords` are of the type PASSWORD."""
    return {name: _hidden(name, value, passwords) for name, value in configs.items()}


def restored(
    given: Mapping[str, str], stored: Mapping[str, str], passwords: Collection[str]
) -> dict[str, str]:
    """The settings of a form; what it sends back as it was shown keeps its stored value."""
    shown = hidden(stored, passwords)
    return {
        name: stored[name] if shown.get(name) == value else value for name, value in given.items()
    }


def _hidden(name: str, value: str, passwords: Collection[str]) -> str:
    if not value or _REFERENCE.fullmatch(value):
        return value
    if name in passwords or _SECRET_NAME.search(name):
        return HIDDEN
    return _USER_INFO.sub(f"{HIDDEN}@", value)
