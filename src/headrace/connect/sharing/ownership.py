"""Which connectors this worker runs, and which worker runs the others. Event loop only."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set

from headrace.connect.sharing.member import SlotAssignment, SlotMember
from headrace.connect.sharing.slots import slot_of
from headrace.service.errors import HttpError

log = logging.getLogger("headrace.connect")

RETRY_S = 1.0


class SlotOwnership:
    """The slots of this worker.

    A slot is owned from the moment at which everything that its former owner wrote is replayed,
    until the group assigns it to no worker or another one. It is released when its connectors have
    stopped.
    """

    def __init__(
        self,
        refresh: Callable[[], Awaitable[None]],
        settle: Callable[[Set[int]], Awaitable[None]],
    ) -> None:
        """`refresh` replays the config topic up to its end; `settle` returns when the connectors of
        slots run, or have stopped, as `owns` says."""
        self._refresh = refresh
        self._settle = settle
        self._owned: frozenset[int] = frozenset()
        self._held: frozenset[int] = frozenset()
        """Assigned, and not released since; they include those that are not owned yet."""
        self._assigned: frozenset[int] = frozenset()
        self._owners: Mapping[int, str] = {}
        self._member: SlotMember | None = None
        self._has_joined = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, member: SlotMember) -> None:
        """Follow the assignments that the group gives to this member."""
        self._member = member
        member.start()

    async def stop(self) -> None:
        """Leave the group; the connectors must have stopped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._member is not None:
            await asyncio.to_thread(self._member.stop)

    @property
    def problem(self) -> str:
        """Why this worker is not in the group; empty if it is."""
        return "" if self._member is None else self._member.problem

    @property
    def is_starting(self) -> bool:
        """Whether the group has not assigned slots yet, or their connectors are not known yet."""
        return not self._has_joined

    @property
    def slots(self) -> frozenset[int]:
        """The slots that this worker owns."""
        return self._owned

    def owns(self, connector: str) -> bool:
        """Whether this worker runs the connector."""
        return slot_of(connector) in self._owned

    def owner(self, connector: str) -> str | None:
        """The URL of the worker to which the connector is assigned; None if there is none now."""
        return self._owners.get(slot_of(connector))

    async def changed(self, timeout_s: float) -> None:
        """Returns at the next change of owners, or after this time."""
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.0, timeout_s))
        except TimeoutError:
            return

    def take(self, assignment: SlotAssignment | None) -> None:
        """An assignment of the group; None: the membership is lost."""
        self._assigned = frozenset() if assignment is None else assignment.slots
        self._owners = {} if assignment is None else assignment.owners
        self._held |= self._assigned
        gone = self._held - self._assigned
        self._owned -= gone
        self._notify()
        if gone:
            log.info("slots are released", extra={"fields": {"slots": sorted(gone)}})
            self._begin(self._release(gone))
        if new := self._assigned - self._owned:
            self._begin(self._gain(new))
        elif assignment is not None:
            self._has_joined = True

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, slots: frozenset[int]) -> None:
        await self._settle(slots)
        assert self._member is not None, "slots were assigned by a member"
        released = slots - self._assigned
        self._held -= released
        self._member.released(released)

    async def _gain(self, slots: frozenset[int]) -> None:
        while True:
            try:
                # The former owner may have written something that is not replayed here yet.
                await self._refresh()
                break
            except HttpError as error:
                log.warning("slots cannot be taken over yet: %s", error.message)
                await asyncio.sleep(RETRY_S)
        gained = (slots & self._assigned) - self._owned
        self._owned |= gained
        self._has_joined = True
        self._notify()
        log.info("slots are taken over", extra={"fields": {"slots": sorted(gained)}})
        await self._settle(gained)
