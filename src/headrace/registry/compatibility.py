"""Compatibility levels: which earlier versions a new schema is checked against, and how."""

from collections.abc import Sequence

from headrace.schemas.comparison import COMPARED_PAIRS, Sides
from headrace.schemas.interface import ParsedSchema

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


def check(
    level: str,
    new: ParsedSchema,
    earlier: Sequence[tuple[int, ParsedSchema]],
    pairs: int = COMPARED_PAIRS,
) -> list[str]:
    """Why the new schema is incompatible with the earlier versions (in ascending order).

    The latest version is compared first; the check ends at the first incompatible version. At most
    `pairs` pairs of types are compared.
    """
    if level == "NONE":
        return []
    chosen = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    for number, old in reversed(chosen):
        if found := _compare(level, new, number, old, pairs):
            return found
    return []


def _compare(
    level: str, new: ParsedSchema, number: int, old: ParsedSchema, pairs: int
) -> list[str]:
    name = f"version {number}"
    if new.kind != old.kind:
        return [f"the type of the new schema is {new.kind}, and that of {name} is {old.kind}"]
    found: list[str] = []
    if level.startswith(("BACKWARD", "FULL")):
        found += new.problems(old, Sides("the new schema", name, pairs))
    if level.startswith(("FORWARD", "FULL")):
        found += old.problems(new, Sides(name, "the new schema", pairs))
    return found
