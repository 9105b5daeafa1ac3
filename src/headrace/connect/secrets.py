"""Secrets by reference: `${file:/path:key}`, `${env:NAME}` and `${dir:/path:name}` (KIP-297).

A configuration is stored and shown with its references; only the host, and the check of a
configuration, resolve them. Literal values of options of type PASSWORD are masked in responses.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SettingError
from headrace.settings.files import read_properties

HIDDEN = "[hidden]"
PROVIDERS = ("file", "env", "dir")

_REFERENCE = re.compile(r"\$\{([^}:]+):(?:([^}]*):)?([^}:]*)\}")


class UnresolvedSecret(Exception):
    """A reference that cannot be resolved; the message says which, and why."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class SecretSources:
    """Which references are resolved; others stay as they are. Empty limits allow everything."""

    providers: tuple[str, ...] = PROVIDERS
    file_paths: tuple[str, ...] = ()
    dir_paths: tuple[str, ...] = ()
    env_pattern: str = ""


EVERYTHING = SecretSources()


def resolve(config: Mapping[str, str], sources: SecretSources = EVERYTHING) -> dict[str, str]:
    """The configuration with the secrets themselves; UnresolvedSecret names what is missing."""
    return {
        option: _REFERENCE.sub(lambda found, at=option: _value(at, found, sources), text)  # type: ignore[misc]
        for option, text in config.items()
    }


def is_reference(text: str) -> bool:
    """Whether a value has a reference in it."""
    return _REFERENCE.search(text) is not None


def _value(option: str, found: re.Match[str], sources: SecretSources) -> str:
    provider, path, key = found[1], found[2] or "", found[3]
    provider = "dir" if provider == "directory" else provider
    if provider not in PROVIDERS or provider not in sources.providers:
        return found[0]
    try:
        if provider == "env":
            return _variable(key, sources.env_pattern)
        if provider == "file":
            return _entry(_allowed(path, sources.file_paths), key)
        return (_allowed(path, sources.dir_paths) / _plain_name(key)).read_text().rstrip("\n")
    except (OSError, LookupError, SettingError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.args[0]
        raise UnresolvedSecret(
            option, f"The reference {found[0]} cannot be resolved: {reason}"
        ) from None


def _variable(name: str, pattern: str) -> str:
    if pattern and not re.fullmatch(pattern, name):
        raise LookupError("config.providers.env.param.allowlist.pattern does not allow this name")
    if name not in os.environ:
        raise LookupError("the worker has no such environment variable")
    return os.environ[name]


def _allowed(path: str, allowed: Iterable[str]) -> Path:
    real = Path(path).resolve()
    folders = [Path(each).resolve() for each in allowed]
    if folders and not any(real == each or each in real.parents for each in folders):
        raise LookupError("config.providers.*.param.allowed.paths does not allow this path")
    return real


def _entry(path: Path, key: str) -> str:
    entries = {name: value for _, name, value in read_properties(path.read_text())}
    if key not in entries:
        raise LookupError("the file has no such key")
    return entries[key]


def _plain_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise LookupError("the last part must be the name of a file")
    return name


# ---------------------------------------------------------------------------------------- masking


def mask(config: Mapping[str, str], passwords: Iterable[str]) -> dict[str, str]:
    """The configuration for responses: literal passwords are hidden, references are shown."""
    hidden = set(passwords)
    return {
        option: HIDDEN if option in hidden and text and not is_reference(text) else text
        for option, text in config.items()
    }


def unmask(config: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """A configuration from a client, whose hidden passwords are those that are stored."""
    return {
        option: stored[option] if text == HIDDEN and option in stored else text
        for option, text in config.items()
    }
