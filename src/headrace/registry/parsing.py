"""Parses schemas together with their references, and caches parsed schemas.

`needs` collects the texts from the state and is fast. `Parser.parse` works on texts only, so it can
run in another thread while the state changes.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.registry import failures, limits
from headrace.registry.cache import BoundedCache
from headrace.registry.failures import RegistryError
from headrace.registry.names import within
from headrace.registry.records import Content, Reference
from headrace.registry.state import RegistryState
from headrace.schemas import formats
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import ParsedSchema, SchemaDependency

CACHE_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """The input of the parser: a text and the texts of its references."""

    kind: str
    text: str
    dependencies: tuple[SchemaDependency, ...] = ()

    @property
    def characters(self) -> int:
        return len(self.text) + sum(len(each.text) for each in self.dependencies)


def source_of(state: RegistryState, subject: str, content: Content) -> SchemaSource:
    """The schema and its references, ordered so that each can be parsed."""
    return SchemaSource(
        content.kind, content.text, needs(state, subject, content.kind, content.references)
    )


def needs(
    state: RegistryState, subject: str, kind: str, references: Sequence[Reference]
) -> tuple[SchemaDependency, ...]:
    """The referenced schemas, each after its own references."""
    if not references:
        # The common case. `visit` below is a reference cycle that the garbage collector must find.
        return ()
    found: OrderedDict[str, SchemaDependency] = OrderedDict()
    under_way: set[tuple[str, int]] = set()

    def visit(parent: str, reference: Reference) -> None:
        target = within(parent, reference.subject)
        version = state.version(target, reference.version, deleted=True)
        if version is None:
            raise failures.invalid_schema(
                f"No schema reference found for subject '{target}' and version "
                f"{reference.version}, for the reference {reference.name!r}"
            )
        place = (target, version.version)
        if place in under_way:
            raise failures.invalid_schema(f"The reference {reference.name!r} is circular")
        if version.content.kind != kind:
            raise failures.invalid_schema(
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
        found[reference.name] = SchemaDependency(reference.name, version.content.text)
        if len(found) > limits.REFERENCES:
            raise _too_many()
        if sum(len(each.text) for each in found.values()) > limits.NEEDED_CHARACTERS:
            raise failures.needs_too_much(limits.NEEDED_CHARACTERS)

    for each in references:
        visit(subject, each)
    return tuple(found.values())


def _too_many() -> RegistryError:
    return failures.invalid_schema(
        f"The schema has more than {limits.REFERENCES} direct and indirect references"
    )


class Parser:
    """Parses schemas and caches the results."""

    def __init__(self) -> None:
        self._cache: BoundedCache[SchemaSource, ParsedSchema] = BoundedCache(
            CACHE_CHARACTERS, limits.SCHEMA_CHARACTERS
        )

    def parse(self, source: SchemaSource) -> ParsedSchema:
        """The parsed schema; raises RegistryError if the text is invalid."""
        found = self._cache.get(source)
        if found is None:
            found = _parse(source)
            self._cache.put(source, found, source.characters)
        return found

    def parse_once(self, source: SchemaSource) -> ParsedSchema:
        """Parses without adding the result to the cache: for schemas that are not registered.

        Many different ones would evict the registered versions, which every check needs, and
        evicting a tree of objects costs almost as much as building it.
        """
        found = self._cache.get(source)
        if found is None:
            found = _parse(source)
        return found


def _parse(source: SchemaSource) -> ParsedSchema:
    if len(source.text) > limits.SCHEMA_CHARACTERS and source.kind in formats.FORMATS:
        raise failures.too_large(len(source.text), limits.SCHEMA_CHARACTERS)
    try:
        return formats.parse(source.kind, source.text, source.dependencies)
    except InvalidSchema as error:
        raise failures.invalid_schema(str(error)) from None
