"""Queries on the state: find a schema, list subjects, prepare a compatibility check."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.registry import compatibility, failures
from headrace.registry.names import ALL_CONTEXTS, context_of, join, normal
from headrace.registry.parsing import Parser, SchemaSource, needs, source_of
from headrace.registry.records import Version
from headrace.registry.state import RegistryState
from headrace.registry.submission import Submission
from headrace.schemas.comparison import COMPARED_PAIRS
from headrace.schemas.errors import TooManyPairs


def find_content(
    state: RegistryState, subject: str, wanted: Submission, *, deleted: bool = False
) -> Version | None:
    """The latest version with this schema. Metadata and rules are compared only if they are given:
    a serializer that looks up its schema does not know the defaults that settings added.
    """
    for found in reversed(state.versions(subject, deleted=deleted)):
        content = found.content
        if (
            content.text == wanted.text
            and content.kind == wanted.kind
            and content.references == wanted.references
            and wanted.metadata in (None, content.metadata)
            and wanted.rule_set in (None, content.rule_set)
        ):
            return found
    return None


def earlier_versions(
    state: RegistryState,
    subject: str,
    level: str,
    metadata: str | None,
    config: Mapping[str, object],
) -> list[Version]:
    """The versions to check against: the last one or all, of the compatibility group."""
    found = state.versions(subject)
    group = config.get("compatibilityGroup")
    if isinstance(group, str):
        own = _property(metadata, group)
        found = [each for each in found if _property(each.content.metadata, group) == own]
    return found if level.endswith("_TRANSITIVE") else found[-1:]


def _property(metadata: str | None, name: str) -> object:
    properties = json.loads(metadata).get("properties") if metadata else None
    return properties.get(name) if isinstance(properties, dict) else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The complete input of a compatibility check; references are resolved to texts.

    It can run in any thread.
    """

    level: str
    new: SchemaSource
    earlier: tuple[tuple[int, SchemaSource], ...]

    @property
    def sources(self) -> list[SchemaSource]:
        return [self.new, *(source for _, source in self.earlier)]

    @property
    def characters(self) -> int:
        return sum(source.characters for source in self.sources)

    def by_version(self) -> "Iterator[Comparison]":
        """The check split by version, in the order of `run`."""
        for each in reversed(self.earlier):
            yield Comparison(self.level, self.new, (each,))

    def run(
        self, parser: Parser, pairs: int = COMPARED_PAIRS, *, remember: bool = False
    ) -> list[str]:
        """Why the new schema is incompatible; empty if it is compatible.

        `remember` caches the parsed schema: for one that is about to be registered.
        """
        new = parser.parse(self.new) if remember else parser.parse_once(self.new)
        earlier = [(number, parser.parse(source)) for number, source in self.earlier]
        try:
            return compatibility.check(self.level, new, earlier, pairs)
        except TooManyPairs as error:
            raise failures.TooLargeToCompare(str(error)) from None
        except RecursionError:
            raise failures.invalid_schema("The schemas are nested too deeply to compare") from None


def comparison(
    state: RegistryState, subject: str, wanted: Submission, against: Version | None = None
) -> Comparison:
    """The check of a schema against one version, or against those that registration checks."""
    config = state.config(subject)
    level = str(config["compatibilityLevel"])
    chosen = (
        earlier_versions(state, subject, level, wanted.metadata, config)
        if against is None
        else [against]
    )
    dependencies = needs(state, subject, wanted.kind, wanted.references)
    return Comparison(
        level,
        SchemaSource(wanted.kind, wanted.text, dependencies),
        tuple((each.version, source_of(state, subject, each.content)) for each in chosen),
    )


def subjects(
    state: RegistryState, names: Iterable[str], prefix: str, *, deleted: bool, deleted_only: bool
) -> list[str]:
    """The names with this prefix, in the prefix's context (`:*:` is any context)."""
    return [
        name
        for name in names
        if _begins(name, prefix) and _is_listed(state, name, deleted, deleted_only)
    ]


def _is_listed(state: RegistryState, name: str, deleted: bool, deleted_only: bool) -> bool:
    if name not in state.subjects:
        return False
    alive = state.has_subject(name)
    return not alive if deleted_only else alive or deleted


def _begins(name: str, prefix: str) -> bool:
    if prefix.startswith(ALL_CONTEXTS):
        rest = prefix.removeprefix(ALL_CONTEXTS)
        return name.removeprefix(join(context_of(name), "")).startswith(rest)
    return name.startswith(normal(prefix)) and context_of(name) == context_of(prefix)
