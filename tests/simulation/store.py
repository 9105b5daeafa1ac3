"""A coordination store in memory, whose faults and delays a test's seed decides.

It has only the guarantees of `headrace.cluster.store`: notifications come late, several commits
at once, or too often; reads are as old as permitted; a connection is lost silently, and the
other side detects it first; a session expires while its owner still uses it; the outcome of a
commit is unknown. The test controls time: later events are passed to it, with a delay in seconds.
"""

import threading
from collections.abc import Callable, Sequence
from random import Random

from headrace.cluster.store import (
    Change,
    CheckVersion,
    Conflict,
    Create,
    Delete,
    Put,
    StoreError,
    StoreNode,
    StoreSession,
    parent_and_name,
)

Later = Callable[[float, Callable[[], None]], None]


class Ensemble:
    """What all stores share: the nodes, who owns those that are ephemeral, and every change."""

    def __init__(
        self,
        random: Random,
        later: Later,
        *,
        session_timeout_s: float = 2.0,
        lateness_s: float = 0.5,
    ) -> None:
        self.random = random
        self.later = later
        self.session_timeout_s = session_timeout_s
        self.lateness_s = lateness_s
        """The most that news is late."""
        self.nodes: dict[str, StoreNode] = {}
        self.owners: dict[str, int] = {}
        """The sessions of ephemeral nodes, by path."""
        self.history: list[dict[str, StoreNode | None]] = []
        """What each commit, and each end of a session, left behind."""
        self.stores: list[SimulatedStore] = []
        # A simulation has one thread; the tests of the port have several.
        self.lock = threading.RLock()
        self._sessions = 0

    def open(self) -> "SimulatedStore":
        """A store with a session of its own."""
        with self.lock:
            store = SimulatedStore(self)
            self.stores.append(store)
            return store

    # -------------------------------------------------------------------------------- faults

    def cut(self, store: "SimulatedStore") -> None:
        """Nothing passes between the store and the ensemble; either finds out in its own time."""
        with self.lock:
            if not store.linked:
                return
            store.linked = False
            store.losses += 1
            losses = store.losses
            # A client gives up sooner than the ensemble, if it is not itself stopped: `pause`.
            self.later(self._delay(2 / 3 * self.session_timeout_s), lambda: store.give_up(losses))
            self._expire_later(store)

    def heal(self, store: "SimulatedStore") -> None:
        """They find each other again, a little later."""
        with self.lock:
            if not store.linked and not store.gone:
                self.later(self._delay(self.lateness_s), store.reconnect)

    def pause(self, store: "SimulatedStore") -> None:
        """The process stands still: it hears nothing, and the ensemble hears nothing of it."""
        with self.lock:
            if store.linked:
                store.linked = False
                store.losses += 1
                self._expire_later(store)

    def kill(self, store: "SimulatedStore") -> None:
        """The process is no more; its session ends when nobody has heard of it for long enough."""
        with self.lock:
            store.gone = True
            self.pause(store)

    def expire(self, store: "SimulatedStore") -> None:
        """The ensemble ends the session now, whatever the store believes."""
        with self.lock:
            if store.linked:
                store.linked = False
                store.losses += 1
                if not store.gone:
                    self.later(self._delay(self.lateness_s), store.reconnect)
            self._end_session_of(store)

    # ---------------------------------------------------------------------------- the inside

    def apply(self, changes: Sequence[Change], session: int) -> None:
        """All of them or Conflict."""
        nodes, owners = dict(self.nodes), dict(self.owners)
        touched: dict[str, StoreNode | None] = {}
        for change in changes:
            path, node = change.path, nodes.get(change.path)
            if (node is not None) == isinstance(change, Create):
                raise Conflict(path)
            if isinstance(change, Create):
                nodes[path] = touched[path] = StoreNode(change.value, 0)
                if change.ephemeral:
                    owners[path] = session
                continue
            assert node is not None
            if node.version != change.version:
                raise Conflict(path)
            if isinstance(change, Put):
                nodes[path] = touched[path] = StoreNode(change.value, node.version + 1)
            elif isinstance(change, Delete):
                del nodes[path]
                owners.pop(path, None)
                touched[path] = None
            else:
                assert isinstance(change, CheckVersion)
        self.nodes, self.owners = nodes, owners
        self._happened(touched)

    def new_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def end_session(self, session: int) -> None:
        gone = [path for path, owner in self.owners.items() if owner == session]
        for path in gone:
            del self.nodes[path], self.owners[path]
        if gone:
            self._happened(dict.fromkeys(gone))

    def _happened(self, touched: dict[str, StoreNode | None]) -> None:
        self.history.append(touched)
        for store in self.stores:
            self.later(self._delay(self.lateness_s), store.hear)

    def _delay(self, most: float) -> float:
        return self.random.uniform(0, most)

    def _expire_later(self, store: "SimulatedStore") -> None:
        losses = store.losses

        def expire() -> None:
            with self.lock:
                if store.losses == losses:
                    self._end_session_of(store)

        self.later(self.session_timeout_s * self.random.uniform(1, 1.25), expire)

    def _end_session_of(self, store: "SimulatedStore") -> None:
        store.session_ended = True
        self.end_session(store.session)


class SimulatedStore:
    """One process's store; see `headrace.cluster.store` for what it promises."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._nodes: dict[str, StoreNode] = {}
        self._seen = 0  # how much of the history
        self._changed: list[Callable[[], None]] = []
        self._told: list[Callable[[StoreSession], None]] = []
        self._state = StoreSession.CONNECTED
        self._loses: list[bool] = []
        self.session = ensemble.new_session()
        self.session_ended = False
        """Whether the ensemble has ended it; the store learns of it when they are in touch."""
        self.linked = True
        self.losses = 0
        self.gone = False
        self._catch_up(len(ensemble.history))

    def get(self, path: str) -> StoreNode | None:
        with self._ensemble.lock:
            return self._nodes.get(path)

    def children(self, path: str) -> dict[str, StoreNode]:
        with self._ensemble.lock:
            found = {}
            for each, node in self._nodes.items():
                parent, name = parent_and_name(each)
                if parent == path:
                    found[name] = node
            return found

    def commit(self, changes: Sequence[Change]) -> None:
        ensemble = self._ensemble
        with ensemble.lock:
            if self._state is StoreSession.SUSPENDED:
                raise StoreError("simulated: no connection")
            if not self.linked:  # finds out by this very commit, which never arrives
                self.suspend()
                raise StoreError("simulated: no answer")
            happens = self._loses.pop() if self._loses else None
            try:
                if happens is not False:
                    ensemble.apply(changes, self.session)
            except Conflict:
                if happens is None:
                    self._catch_up(len(ensemble.history))
                    raise
            if happens is None:
                self._catch_up(len(ensemble.history))
                return
            ensemble.cut(self)
            self.suspend()
            ensemble.heal(self)
            raise StoreError("simulated: the connection was lost before the answer came")

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def on_session(self, told: Callable[[StoreSession], None]) -> None:
        with self._ensemble.lock:
            self._told.append(told)
            told(self._state)

    def close(self) -> None:
        ensemble = self._ensemble
        with ensemble.lock:
            self.gone = True
            self.linked = False
            self.losses += 1
            ensemble.end_session(self.session)

    def lose_next_commit(self, *, happens: bool) -> None:
        """The next commit raises StoreError, whether it `happens` or not."""
        self._loses.append(happens)

    # ---------------------------------------------------------------------------- the inside

    def hear(self) -> None:
        """News arrives: of one more change, or of all there are."""
        ensemble = self._ensemble
        with ensemble.lock:
            if not self.linked:
                return
            # In the end everything has arrived: there is one of these for every change.
            behind = len(ensemble.history) - self._seen
            if behind > 0:
                self._catch_up(self._seen + ensemble.random.randint(1, behind))
            self._tell_changed()

    def give_up(self, losses: int) -> None:
        """No sign of the ensemble for too long, if the loss is still that one."""
        with self._ensemble.lock:
            if self.losses == losses:
                self.suspend()

    def suspend(self) -> None:
        """The store finds out that it is cut off."""
        if not self.gone and self._state is not StoreSession.SUSPENDED:
            self._state = StoreSession.SUSPENDED
            self._tell(StoreSession.SUSPENDED)

    def reconnect(self) -> None:
        """The store and the ensemble are in touch again, in the old session or in a new one."""
        ensemble = self._ensemble
        with ensemble.lock:
            if self.linked or self.gone:
                return
            self.suspend()
            self.linked = True
            self.losses += 1
            news = StoreSession.EXPIRED if self.session_ended else StoreSession.CONNECTED
            if self.session_ended:
                self.session, self.session_ended = ensemble.new_session(), False
            self._catch_up(len(ensemble.history))
            self._state = StoreSession.CONNECTED
            self._tell(news)
            self._tell_changed()

    def _catch_up(self, seen: int) -> None:
        for touched in self._ensemble.history[self._seen : seen]:
            for path, node in touched.items():
                if node is None:
                    self._nodes.pop(path, None)
                else:
                    self._nodes[path] = node
        self._seen = max(seen, self._seen)

    def _tell(self, news: StoreSession) -> None:
        for told in self._told:
            told(news)

    def _tell_changed(self) -> None:
        for changed in self._changed:
            changed()
