"""The registry's state, built from the records of the schemas topic. Only `replay` changes it.

No I/O, no clock, no thread. A registry that writes has two: one with the records read from the
topic, which requests read, and the writer's, which also has the records that it is writing.
"""

from collections.abc import Iterator, Mapping
from typing import Self, TypeVar

from headrace.registry.guid import guid_of
from headrace.registry.names import context_of, join, within
from headrace.registry.records import (
    Change,
    ClearSubject,
    Content,
    DeleteSubject,
    DropVersion,
    HighestIds,
    PutConfig,
    PutMode,
    PutVersion,
    Version,
)

Place = tuple[str, int]
"""A subject and a version."""

READ_WRITE = "READWRITE"

K = TypeVar("K")
V = TypeVar("V")


class Ids:
    """The ids of one context."""

    __slots__ = ("by_content", "by_id", "highest", "places")

    def __init__(self) -> None:
        self.by_id: dict[int, Content] = {}
        self.by_content: dict[Content, int] = {}
        self.places: dict[int, set[Place]] = {}
        self.highest = 0

    def copy(self) -> "Ids":
        made = Ids()
        made.by_id, made.by_content = dict(self.by_id), dict(self.by_content)
        made.places = {each: set(places) for each, places in self.places.items()}
        made.highest = self.highest
        return made


class RegistryState:
    """Subjects, ids, settings and references between schemas."""

    __slots__ = ("configs", "contexts", "guids", "modes", "referrers", "subjects")

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.contexts: dict[str, Ids] = {}
        self.guids: dict[str, tuple[str, int]] = {}
        self.configs: dict[str | None, Mapping[str, object]] = {}
        self.modes: dict[str | None, str] = {}
        self.referrers: dict[Place, set[Place]] = {}

    def copy(self) -> Self:
        """An independent copy; the immutable schemas are shared."""
        made = type(self)()
        made.subjects = {name: dict(versions) for name, versions in self.subjects.items()}
        made.contexts = {name: ids.copy() for name, ids in self.contexts.items()}
        made.guids = dict(self.guids)
        made.configs, made.modes = dict(self.configs), dict(self.modes)
        made.referrers = {place: set(others) for place, others in self.referrers.items()}
        return made

    # ------------------------------------------------------------------------------- changing

    def replay(self, change: Change) -> None:
        """Applies a record."""
        match change:
            case PutVersion(version):
                self._put(version)
            case DropVersion(subject, number):
                self._drop(subject, number)
            case DeleteSubject(subject, last):
                for found in list(self.subjects.get(subject, {}).values()):
                    if found.version <= last and not found.deleted:
                        self._put(_as_deleted(found))
            case PutConfig(scope, config):
                _set(self.configs, scope, config)
            case PutMode(scope, mode):
                _set(self.modes, scope, mode)
            case HighestIds(by_context):
                for context, highest in by_context.items():
                    ids = self.contexts.setdefault(context, Ids())
                    ids.highest = max(ids.highest, highest)
            case ClearSubject():
                pass

    def _put(self, version: Version) -> None:
        context = context_of(version.subject)
        ids = self.contexts.setdefault(context, Ids())
        known = ids.by_id.get(version.id)
        if known is not None and (known.kind, known.text) != (
            version.content.kind,
            version.content.text,
        ):
            # Two schemas with one id: the first one is kept, because data may refer to it.
            return
        self._drop(version.subject, version.version)
        self.subjects.setdefault(version.subject, {})[version.version] = version
        ids.highest = max(ids.highest, version.id)
        ids.by_id.setdefault(version.id, version.content)
        ids.by_content.setdefault(version.content, version.id)
        place = (version.subject, version.version)
        ids.places.setdefault(version.id, set()).add(place)
        self.guids[guid_of(version.content)] = (context, version.id)
        for target in _targets(version):
            self.referrers.setdefault(target, set()).add(place)

    def _drop(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self.subjects[subject]
        place = (subject, number)
        for target in _targets(version):
            others = self.referrers.get(target, set())
            others.discard(place)
            if not others:
                self.referrers.pop(target, None)
        ids = self.contexts[context_of(subject)]
        ids.places[version.id].discard(place)
        if not ids.places[version.id]:
            del ids.places[version.id]
            for content in {ids.by_id.pop(version.id), version.content}:
                ids.by_content.pop(content, None)
                self.guids.pop(guid_of(content), None)

    # --------------------------------------------------------------------------------- asking

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Versions in ascending order, optionally with soft-deleted ones."""
        found = self.subjects.get(subject, {})
        return [found[n] for n in sorted(found) if deleted or not found[n].deleted]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """The version, or the latest one for -1."""
        if number == -1:
            return next(reversed(self.versions(subject, deleted=deleted)), None)
        found = self.subjects.get(subject, {}).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        return bool(self.versions(subject, deleted=deleted))

    def next_version(self, subject: str) -> int:
        return max(self.subjects.get(subject, {}), default=0) + 1

    def by_id(self, context: str, schema_id: int) -> Content | None:
        ids = self.contexts.get(context)
        return None if ids is None else ids.by_id.get(schema_id)

    def id_of(self, context: str, content: Content) -> int | None:
        ids = self.contexts.get(context)
        return None if ids is None else ids.by_content.get(content)

    def highest_id(self, context: str) -> int:
        ids = self.contexts.get(context)
        return 0 if ids is None else ids.highest

    def places(self, context: str, schema_id: int, *, deleted: bool = False) -> list[Place]:
        """The subjects and versions with this id."""
        ids = self.contexts.get(context)
        found = () if ids is None else ids.places.get(schema_id, ())
        return sorted(each for each in found if deleted or not self._at(each).deleted)

    def referred_by(self, place: Place, *, deleted: bool = False) -> list[Version]:
        """The versions that refer to this one."""
        found = sorted(self.referrers.get(place, ()))
        return [self._at(each) for each in found if deleted or not self._at(each).deleted]

    def _at(self, place: Place) -> Version:
        return self.subjects[place[0]][place[1]]

    def config(self, subject: str | None) -> dict[str, object]:
        """The settings of a subject: its own, else those of its context, else the global ones."""
        for scope in _scopes(subject):
            if (found := self.configs.get(scope)) is not None:
                return {"compatibilityLevel": "BACKWARD", **found}
        return {"compatibilityLevel": "BACKWARD"}

    def mode(self, subject: str | None) -> str:
        if self.modes.get(None) == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        for scope in _scopes(subject):
            if (found := self.modes.get(scope)) is not None:
                return found
        return READ_WRITE


def _scopes(subject: str | None) -> Iterator[str | None]:
    if subject is not None:
        yield subject
        context = join(context_of(subject), "")
        if context and context != subject:
            yield context
    yield None


def _targets(version: Version) -> list[Place]:
    return [
        (within(version.subject, each.subject), each.version) for each in version.content.references
    ]


def _as_deleted(version: Version) -> Version:
    return Version(version.subject, version.version, version.id, version.content, deleted=True)


def _set(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
