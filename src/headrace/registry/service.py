"""The registry without HTTP: what is known, who writes, and one method for each kind of write."""

import asyncio
from collections.abc import Callable, Sequence

from headrace.registry import decisions, lookup, submission
from headrace.registry.decisions import Outcome
from headrace.registry.formats.parsed import Parsed
from headrace.registry.parsing import Parser, Source, needs, source_of
from headrace.registry.pen import Pen
from headrace.registry.records import Content, Json, Version
from headrace.registry.schemas_topic import Follower, Where, make_topic
from headrace.registry.state import State
from headrace.registry.submission import Submission
from headrace.registry.verdicts import Verdicts

START_TIMEOUT_S = 60.0
# Parsing more than this would hold up everyone else's request: it goes to a thread.
QUICK_CHARACTERS = 20_000


class Registry:
    """A running registry. Everything here happens in the event loop unless it says otherwise."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.parser = Parser()
        self.verdicts = Verdicts(self.parser)
        self.follower: Follower
        self.pen: Pen

    async def start(self) -> None:
        """Reads the topic to its end; TopicUnusable where that cannot be done."""
        await asyncio.to_thread(make_topic, self.where, START_TIMEOUT_S)
        self.follower = Follower(self.where)
        await self.follower.start(START_TIMEOUT_S)
        self.pen = Pen(self.where, self.follower)

    async def stop(self) -> None:
        await asyncio.to_thread(self.pen.stop)
        await asyncio.to_thread(self.follower.stop)

    @property
    def state(self) -> State:
        return self.follower.state

    async def parse(self, source: Source) -> Parsed:
        if source.characters <= QUICK_CHARACTERS:
            return self.parser.parse(source)
        return await asyncio.to_thread(self.parser.parse, source)

    async def parsed(self, subject: str, content: Content) -> Parsed:
        """A schema that is registered, with its references."""
        return await self.parse(source_of(self.state, subject, content))

    async def canonical(self, subject: str, wanted: Submission, *, normalize: bool) -> Submission:
        """The submission with its text as it would be kept."""
        wanted = submission.resolved(wanted, self.state, subject)
        source = Source(
            wanted.kind,
            wanted.text,
            needs(self.state, subject, wanted.kind, wanted.references),
        )
        parsed = await self.parse(source)
        normalize = normalize or bool(self.state.config(subject).get("normalize"))
        text = parsed.normalized() if normalize else parsed.canonical
        return submission.with_text(wanted, text)

    async def look_up(
        self, subject: str, wanted: Submission, *, normalize: bool, deleted: bool
    ) -> Version | None:
        """The version of the subject that has this schema."""
        wanted = await self.canonical(subject, wanted, normalize=normalize)
        return lookup.find_content(self.state, subject, wanted, deleted=deleted)

    async def check(
        self, subject: str, wanted: Submission, against: Version | None = None
    ) -> Sequence[str]:
        """Why the schema could not be the subject's next version; empty if it could."""
        wanted = submission.resolved(wanted, self.state, subject)
        compared = lookup.comparison(self.state, subject, wanted, against)
        if compared.characters <= QUICK_CHARACTERS:
            return self.verdicts.problems(compared)
        return await asyncio.to_thread(self.verdicts.problems, compared)

    async def register(self, subject: str, wanted: Submission, *, normalize: bool) -> object:
        """The schema's id and version, new or old."""
        if wanted.id == -1 and wanted.version == 0 and self.state.mode(subject) != "IMPORT":
            # Producers register at every start what is long known; that needs no writer.
            found = await self.look_up(subject, wanted, normalize=normalize, deleted=False)
            if found is not None and not self._adds(subject):
                return decisions.registered_json(found)
        return await self.write(
            lambda state: decisions.register(
                state, self.parser, subject, wanted, normalize=normalize
            )
        )

    def _adds(self, subject: str) -> bool:
        """Whether settings add to what clients send, so that a known schema may become another."""
        config: Json = self.state.config(subject)
        return any(name.startswith(("default", "override")) for name in config)

    async def write(self, decide: Callable[[State], Outcome]) -> object:
        """The answer to a write, once it is committed and visible here."""
        return await self.pen.write(decide)
