"""Questions that take more than one look at the state: lookups of a schema, lists, comparisons."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.registry import compatibility, limits
from headrace.registry.failures import InvalidSchema
from headrace.registry.names import ALL_CONTEXTS, context_of, join, normal
from headrace.registry.parsing import Parser, Source, needs, source_of
from headrace.registry.records import Version
from headrace.registry.state import State
from headrace.registry.submission import Submission


def find_content(
    state: State, subject: str, wanted: Submission, *, deleted: bool = False
) -> Version | None:
    """The latest version with this schema. Metadata and rules count only if the client names them.

    A serializer that looks up its schema knows nothing of what the settings have added to it.
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
    state: State, subject: str, level: str, metadata: str | None, config: Mapping[str, object]
) -> list[Version]:
    """The versions that a new one is held against: the last, or all, of its compatibility group."""
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
    """A compatibility check with everything that its verdict and its messages follow from.

    It can run in any thread. References are here as the texts that they lead to.
    """

    level: str
    new: Source
    earlier: tuple[tuple[int, Source], ...]

    @property
    def sources(self) -> list[Source]:
        return [self.new, *(source for _, source in self.earlier)]

    @property
    def characters(self) -> int:
        return sum(source.characters for source in self.sources)

    def by_version(self) -> "Iterator[Comparison]":
        """The same check in parts, in the order in which `run` makes them."""
        for each in reversed(self.earlier):
            yield Comparison(self.level, self.new, (each,))

    def run(
        self, parser: Parser, pairs: int = limits.COMPARISONS, *, remember: bool = False
    ) -> list[str]:
        """Why the new schema may not come next; empty if it may.

        `remember` is for a schema that is about to be registered: later checks will need it.
        """
        new = parser.parse(self.new) if remember else parser.parse_once(self.new)
        earlier = [(number, parser.parse(source)) for number, source in self.earlier]
        try:
            return compatibility.check(self.level, new, earlier, pairs)
        except RecursionError:
            raise InvalidSchema("The schemas are nested too deeply to compare") from None


def comparison(
    state: State, subject: str, wanted: Submission, against: Version | None = None
) -> Comparison:
    """The check of a schema against one version, or against those that registration would take."""
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
        Source(wanted.kind, wanted.text, dependencies),
        tuple((each.version, source_of(state, subject, each.content)) for each in chosen),
    )


def subjects(
    state: State, names: Iterable[str], prefix: str, *, deleted: bool, deleted_only: bool
) -> list[str]:
    """Those of the names that begin so, in the prefix's context (`:*:` is any)."""
    return [
        name
        for name in names
        if _begins(name, prefix) and _is_listed(state, name, deleted, deleted_only)
    ]


def _is_listed(state: State, name: str, deleted: bool, deleted_only: bool) -> bool:
    if name not in state.subjects:
        return False
    alive = state.has_subject(name)
    return not alive if deleted_only else alive or deleted


def _begins(name: str, prefix: str) -> bool:
    if prefix.startswith(ALL_CONTEXTS):
        rest = prefix.removeprefix(ALL_CONTEXTS)
        return name.removeprefix(join(context_of(name), "")).startswith(rest)
    return name.startswith(normal(prefix)) and context_of(name) == context_of(prefix)
