"""Schemas with what they refer to, parsed, and those kept that will be needed again.

`needs` collects texts from a State and is quick; `Parser.parse` works on texts alone, so that it
can run in another thread while the State goes on changing.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.registry import formats, limits
from headrace.registry.failures import InvalidSchema, needs_too_much
from headrace.registry.formats.parsed import Dependency, Parsed
from headrace.registry.kept import Kept
from headrace.registry.names import within
from headrace.registry.records import Content, Reference
from headrace.registry.state import State

KEPT_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """Everything that a schema is parsed from."""

    kind: str
    text: str
    dependencies: tuple[Dependency, ...] = ()

    @property
    def characters(self) -> int:
        return len(self.text) + sum(len(each.text) for each in self.dependencies)


def source_of(state: State, subject: str, content: Content) -> Source:
    """The schema and all that it refers to, in the order in which they can be parsed."""
    return Source(
        content.kind, content.text, needs(state, subject, content.kind, content.references)
    )


def needs(
    state: State, subject: str, kind: str, references: Sequence[Reference]
) -> tuple[Dependency, ...]:
    """The schemas behind the references, each after those that it refers to itself."""
    if not references:
        # Nearly always; and the function below refers to itself: the collector has to find it.
        return ()
    found: OrderedDict[str, Dependency] = OrderedDict()
    under_way: set[tuple[str, int]] = set()

    def visit(parent: str, reference: Reference) -> None:
        target = within(parent, reference.subject)
        version = state.version(target, reference.version, deleted=True)
        if version is None:
            raise InvalidSchema(
                f"No schema reference found for subject '{target}' and version "
                f"{reference.version}, which the schema calls {reference.name!r}"
            )
        place = (target, version.version)
        if place in under_way:
            raise InvalidSchema(f"The reference {reference.name!r} leads back to itself")
        if version.content.kind != kind:
            raise InvalidSchema(
                f"The reference {reference.name!r} is a schema of type {version.content.kind}, "
                f"not {kind}"
            )
        if reference.name in found:
            return
        under_way.add(place)
        if len(under_way) > limits.REFERENCES:
            raise _too_many()
        for each in version.content.references:
            visit(target, each)
        under_way.discard(place)
        found[reference.name] = Dependency(reference.name, version.content.text)
        if len(found) > limits.REFERENCES:
            raise _too_many()
        if sum(len(each.text) for each in found.values()) > limits.NEEDED_CHARACTERS:
            raise needs_too_much(limits.NEEDED_CHARACTERS)

    for each in references:
        visit(subject, each)
    return tuple(found.values())


def _too_many() -> InvalidSchema:
    return InvalidSchema(f"The schema needs more than {limits.REFERENCES} other schemas")


class Parser:
    """Parses, and remembers what it has parsed, up to a number of characters."""

    def __init__(self) -> None:
        self._kept: Kept[Source, Parsed] = Kept(KEPT_CHARACTERS, limits.SCHEMA_CHARACTERS)

    def parse(self, source: Source) -> Parsed:
        """The schema; InvalidSchema where the text is none."""
        found = self._kept.get(source)
        if found is None:
            found = formats.parse(source.kind, source.text, source.dependencies)
            self._kept.put(source, found, source.characters)
        return found

    def parse_once(self, source: Source) -> Parsed:
        """The same, but not remembered: for a text that nobody has registered yet.

        A flood of those would push out what every check needs, the versions that are registered;
        and to make room for a tree of objects costs nearly as much as to build one.
        """
        found = self._kept.get(source)
        if found is None:
            found = formats.parse(source.kind, source.text, source.dependencies)
        return found
