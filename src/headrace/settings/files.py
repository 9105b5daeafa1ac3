"""Settings from files and from the command line: names and texts, checked with their position.

Files are Java properties, such as Kafka's server.properties, or TOML. Errors have the file and the
line; the result is for `Settings.parse`.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import TypeAlias

from headrace.errors import SettingError
from headrace.settings.resolve import check_broker_config

CheckSetting: TypeAlias = Callable[[str, str], object]
"""Raises SettingError if the name is unknown or the value invalid."""

logger = logging.getLogger(__name__)

_PUBLIC = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")
"""Settings of type PASSWORD, as in Kafka, whose values are no secrets."""
_SECRETS_OF_JAAS = ("password", "secret", "hmac")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_assignment(text: str, check: CheckSetting = check_broker_config) -> tuple[str, str]:
    """The name and value of `name=value`, as given on a command line; checked."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise SettingError(f"{text}: expected name=value, such as num.partitions=3")
    check(name, value)
    return name, value.strip()


def load_properties(
    path: str | PathLike[str], check: CheckSetting = check_broker_config
) -> dict[str, str]:
    """The settings of a Java properties file, such as Kafka's server.properties."""
    loaded: dict[str, str] = {}
    for line, name, value in read_properties(_read(path)):
        _check(f"{path}:{line}", name, value, check)
        loaded[name] = value
    return loaded


def load_toml(
    path: str | PathLike[str], check: CheckSetting = check_broker_config
) -> dict[str, str]:
    """The settings of a TOML file: `log.dirs = "data"`, or tables whose names join with dots."""
    # Imported here: most starts read no TOML.
    import tomllib

    text = _read(path)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path}: {error}; expected TOML, such as num.partitions = 3") from error
    loaded: dict[str, str] = {}
    for name, leaf in _flatten("", tree):
        where = f"{path}:{_line_of(text, name)}"
        value = _toml_text(where, name, leaf)
        _check(where, name, value, check)
        loaded[name] = value
    return loaded


def format_properties(settings: Mapping[str, str]) -> str:
    """Settings as a text that `read_properties` reads."""
    lines = (f"{_escape(name, '=: ')}={_escape(value)}\n" for name, value in settings.items())
    return "".join(lines)


def _escape(text: str, more: str = "") -> str:
    escaped = text.replace("\\", "\\\\")
    for character in more:
        escaped = escaped.replace(character, f"\\{character}")
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f"\\{escaped}" if escaped.startswith((" ", "#", "!")) else escaped


def warn_of_visible_secrets(assignments: Iterable[str], is_secret: Callable[[str], bool]) -> None:
    """Warn of secrets on the command line, which every user of the machine can read."""
    parts = (one.partition("=") for one in assignments)
    given = {name.strip(): value for name, _, value in parts}
    if names := _secrets(given, is_secret):
        logger.warning(
            "every user of this machine can read %s in the list of processes. Use a file with mode "
            "0600 and --config instead of --set", ", ".join(names),
        )  # fmt: skip


def warn_of_readable_secrets(
    path: str, settings: Mapping[str, str], is_secret: Callable[[str], bool]
) -> None:
    """Warn of a settings file with secrets that every user of the machine can read."""
    names = _secrets(settings, is_secret)
    if names and os.stat(path).st_mode & 0o004:
        logger.warning(
            "every user of this machine may read %s in %s; restrict it to the user of this "
            "process: chmod 600 %s", ", ".join(names), path, path,
        )  # fmt: skip


def _secrets(settings: Mapping[str, str], is_secret: Callable[[str], bool]) -> list[str]:
    """The names of settings with secrets."""

    def has_secret(name: str, value: str) -> bool:
        if not value or not is_secret(name) or name.endswith(_PUBLIC):
            return False
        # That of Kerberos has the name of a file.
        is_jaas, words = name.endswith("sasl.jaas.config"), value.lower()
        return not is_jaas or any(one in words for one in _SECRETS_OF_JAAS)

    return [name for name, value in settings.items() if has_secret(name, value)]


def read_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, key and value of each entry, by the rules of java.util.Properties."""
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text), start=1))
    for number, raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            _, following = next(lines, (0, ""))
            line = line[:-1] + following.lstrip(" \t\f")
        key, value = _split(line)
        yield number, _unescape(key), _unescape(value)


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value: the first unescaped `=`, `:` or blank ends the key."""
    found = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert found is not None, "every part of the pattern may be empty"
    return found[1], found[2]


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", one, text)


def _read(path: str | PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise SettingError(f"{path}: no such file; give the path of a settings file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read as text ({error})") from error


def _check(where: str, name: str, value: str, check: CheckSetting) -> None:
    try:
        check(name, value)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


def _flatten(prefix: str, tree: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, leaf in tree.items():
        name = f"{prefix}{key}"
        if isinstance(leaf, dict):
            yield from _flatten(f"{name}.", leaf)
        else:
            yield name, leaf


def _toml_text(where: str, name: str, leaf: object) -> str:
    match leaf:
        case bool():
            return "true" if leaf else "false"
        case int() | float() | str():
            return str(leaf)
        case list() if all(isinstance(word, str | int) for word in leaf):
            return ",".join(str(word) for word in leaf)
    raise SettingError(f"{where}: {name}: expected text, a number, true, false or a list of words")


def _line_of(text: str, name: str) -> int:
    """The line that sets `name`: TOML's parser has no positions, so the text is searched."""
    words = name.split(".")
    for start in range(len(words)):
        tail = r"\s*\.\s*".join(rf'["\']?{re.escape(word)}["\']?' for word in words[start:])
        found = re.search(rf"^\s*{tail}\s*=", text, re.MULTILINE)
        if found:
            return text.count("\n", 0, found.end()) + 1
    return 1
