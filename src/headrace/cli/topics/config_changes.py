"""Requested changes of configs, and the output after them."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cli import output


@dataclass(frozen=True, slots=True)
class Changes:
    """Configs to set and configs to reset."""

    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]


def report(what: str, changes: Changes, *, as_json: bool) -> None:
    """Print the changes."""
    if as_json:
        kind, _, name = what.partition(" ")
        output.print_json(
            {kind: name, "set": dict(changes.to_set), "unset": list(changes.to_unset)}
        )
        return
    for key, value in changes.to_set.items():
        print(f"{what}: {key}={value}")
    for key in changes.to_unset:
        print(f"{what}: {key} is reset to its default")
