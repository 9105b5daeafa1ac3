"""The registry without HTTP: state, topic reader, writer, and one method per operation."""

import asyncio
import time
from collections.abc import Callable, Sequence

from headrace.registry import decisions, failures, limits, lookup, submission
from headrace.registry.compatibility_cache import CompatibilityChecks
from headrace.registry.decisions import Decision
from headrace.registry.failures import RegistryError, TooLargeToCompare
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser, SchemaSource, needs, source_of
from headrace.registry.records import Content, Json, Version
from headrace.registry.schemas_topic import SchemasReader, TopicLocation, make_topic
from headrace.registry.state import RegistryState
from headrace.registry.submission import Submission
from headrace.registry.work import (
    CANONICAL,
    NORMALIZED,
    Answers,
    NeedsWork,
    Result,
    Task,
    TextOf,
    is_quick,
)
from headrace.registry.workers import Workers
from headrace.registry.writer import Writer
from headrace.service.slices import in_slices

START_TIMEOUT_S = 60.0
ATTEMPTS = 5
"""Attempts to register a large schema while other requests change its subject."""


class Registry:
    """A running registry. Methods run in the event loop."""

    def __init__(self, location: TopicLocation) -> None:
        self.location = location
        self.parser = Parser()
        self.checks = CompatibilityChecks(self.parser)
        self.workers = Workers()
        self.reader: SchemasReader
        self.writer: Writer

    async def start(self) -> None:
        """Reads the topic to its end; raises StartFailure if that fails."""
        await asyncio.to_thread(make_topic, self.location, START_TIMEOUT_S)
        self.reader = SchemasReader(self.location)
        await self.reader.start(START_TIMEOUT_S)
        self.writer = Writer(self.location, self.reader)

    async def stop(self) -> None:
        await self.workers.stop()
        await asyncio.to_thread(self.writer.stop)
        await asyncio.to_thread(self.reader.stop)

    @property
    def state(self) -> RegistryState:
        return self.reader.state

    async def subjects(self, prefix: str, *, deleted: bool, deleted_only: bool) -> list[str]:
        """Subjects with this prefix, sorted."""
        found: list[str] = []
        async for names in in_slices(list(self.state.subjects)):
            found += lookup.subjects(
                self.state, names, prefix, deleted=deleted, deleted_only=deleted_only
            )
        return sorted(found)

    async def text(self, source: SchemaSource, form: str) -> str:
        """The text of a schema in one of its forms."""
        task = TextOf(source, form)
        return task.run(self.parser) if is_quick(task) else str(await self.workers.run(task))

    async def formatted(self, subject: str, content: Content, form: str) -> str:
        """A registered schema in another format."""
        return await self.text(source_of(self.state, subject, content), form)

    async def canonical(
        self, subject: str, wanted: Submission, answers: Answers, *, normalize: bool
    ) -> Submission:
        """The submission with the text that would be stored."""
        wanted = submission.resolved(wanted, self.state, subject)
        source = SchemaSource(
            wanted.kind,
            wanted.text,
            needs(self.state, subject, wanted.kind, wanted.references),
        )
        normalize = normalize or bool(self.state.config(subject).get("normalize"))
        form = NORMALIZED if normalize else CANONICAL
        text = await self.text(source, form)
        answers.add(TextOf(source, form), text)
        return submission.with_text(wanted, text)

    async def look_up(
        self, subject: str, wanted: Submission, *, normalize: bool, deleted: bool
    ) -> Version | None:
        """The version of the subject with this schema."""
        answers = Answers(self.parser)
        return await self._find(subject, wanted, answers, normalize=normalize, deleted=deleted)

    async def _find(
        self,
        subject: str,
        wanted: Submission,
        answers: Answers,
        *,
        normalize: bool,
        deleted: bool = False,
    ) -> Version | None:
        wanted = await self.canonical(subject, wanted, answers, normalize=normalize)
        return lookup.find_content(self.state, subject, wanted, deleted=deleted)

    async def check(
        self, subject: str, wanted: Submission, against: Version | None = None
    ) -> Sequence[str]:
        """Why the schema is incompatible as the next version; empty if it is compatible."""
        wanted = submission.resolved(wanted, self.state, subject)
        compared = lookup.comparison(self.state, subject, wanted, against)
        found = self.checks.cached(compared)
        if found is None and is_quick(compared):
            try:
                return self.checks.problems(compared, limits.QUICK_COMPARISONS)
            except TooLargeToCompare:
                pass
        if found is None:
            found = await self._compare(compared)
            self.checks.store(compared, found)
        return found

    async def _done(self, task: Task) -> Result:
        if isinstance(task, Comparison):
            return await self._compare(task)
        return await self.workers.run(task)

    async def _compare(self, compared: Comparison) -> Sequence[str]:
        """Runs the check in worker processes, one version at a time."""
        deadline = time.monotonic() + limits.CHECK_SECONDS
        for part in compared.by_version():
            if found := await self.workers.run(part):
                return found
            if time.monotonic() > deadline:
                raise failures.invalid_schema(
                    f"The check against {len(compared.earlier)} versions takes more than "
                    f"{limits.CHECK_SECONDS:g} s; choose a level that is not transitive"
                )
        return ()

    async def register(self, subject: str, wanted: Submission, *, normalize: bool) -> object:
        """Id and version of the schema, existing or new."""
        answers = Answers(self.parser)
        if wanted.id == -1 and wanted.version == 0 and self.state.mode(subject) != "IMPORT":
            # Producers register known schemas on every start; that does not need the writer.
            found = await self._find(subject, wanted, answers, normalize=normalize)
            if found is not None and not self._adds(subject):
                return decisions.registered_json(found)
        for _ in range(ATTEMPTS):
            try:
                return await self.write(
                    lambda state: decisions.register(
                        state, answers, subject, wanted, normalize=normalize
                    )
                )
            except NeedsWork as undecided:
                # The writer thread must not wait for this, because other requests need it.
                answers.add(undecided.task, await self._done(undecided.task))
        raise RegistryError(
            503, f"Subject '{subject}' changed while the schema was checked; try again"
        )

    def _adds(self, subject: str) -> bool:
        """Whether the subject's settings add metadata or rules, so that the result may be new."""
        config: Json = self.state.config(subject)
        return any(name.startswith(("default", "override")) for name in config)

    async def write(self, decide: Callable[[RegistryState], Decision]) -> object:
        """The response to a write, after its records are committed and replayed here."""
        return await self.writer.write(decide)
