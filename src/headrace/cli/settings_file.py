"""Settings from a file: Java properties or TOML, both as dotted names with text values."""

from collections.abc import Mapping
from pathlib import Path

from headrace.cli.failures import bad_usage


def read(path: str) -> dict[str, str]:
    """What the file sets; its suffix says which language it is in."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise bad_usage(f"cannot read settings from {path}: {reason}") from None
    if path.endswith(".toml"):
        return _toml(text, path)
    return _properties(text, path)


def _toml(text: str, path: str) -> dict[str, str]:
    import tomllib

    try:
        return dict(_flat(tomllib.loads(text), ""))
    except tomllib.TOMLDecodeError as error:
        raise bad_usage(f"{path} is not valid TOML: {error}") from None


def _flat(table: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    """Nested tables become dotted names: [log] retention.ms = 1 is log.retention.ms."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            found.extend(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, bool):
            found.append((prefix + name, str(value).lower()))
        elif isinstance(value, list):
            found.append((prefix + name, ",".join(str(part) for part in value)))
        else:
            found.append((prefix + name, str(value)))
    return found


def _properties(text: str, path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    joined = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = joined + line.strip()
        joined = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            joined = line[:-1]
            continue
        cut = min((at for at in (line.find("="), line.find(":")) if at > 0), default=-1)
        if cut < 0:
            raise bad_usage(f"{path}, line {number}: {line!r} is not of the form name=value")
        found[line[:cut].strip()] = line[cut + 1 :].strip()
    return found
