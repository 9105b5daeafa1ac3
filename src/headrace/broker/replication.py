"""This broker's part in a cluster: metadata changes, fetchers, in-sync replicas, registration.

A broker with a metadata store of its own does not use this module.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from headrace.client.aio import Connect
from headrace.clock import Clock
from headrace.cluster.image import Broker, Image
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Store, StoreSession
from headrace.errors import KafkaError
from headrace.replication.damage import Damage
from headrace.replication.fetchers import Fetchers
from headrace.replication.in_sync import InSync
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.settings import Settings

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
"""The delay before a failed call to the store is repeated."""
_OPEN_AGAIN_S = 2.0
"""The delay before another attempt to open a log."""


class Replication:
    """Applies changes of the cluster to this broker's replicas, and reports its own."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        metadata: Metadata,
        membership: Membership,
        replicas: Replicas,
        executor: Executor,
        clock: Clock,
        rejoin: Callable[[], Broker],
        connect: Connect,
    ) -> None:
        self._settings = settings
        self._store = store
        self._metadata = metadata
        self._membership = membership
        self._replicas = replicas
        self._executor = executor
        self._rejoin = rejoin
        max_lag_ms = settings.integer("replica.lag.time.max.ms")
        self._in_sync = InSync(replicas, metadata, membership, max_lag_ms)
        self._fetchers = Fetchers(replicas, metadata, settings, executor, clock, connect)
        self._damage = Damage(replicas, metadata, membership)
        self._max_lag_ms = max_lag_ms
        self._due: dict[Callable[[], None], None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._out_at: asyncio.TimerHandle | None = None
        self._stopped = False
        self._saving: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Begin; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._replicas.on_roles = lambda: self._soon(self._fetchers.update)
        self._replicas.isr_expansions.on_add = lambda: self._soon(self._in_sync.expand)
        self._replicas.offline_replicas.on_add = lambda: self._soon(self._retire)
        self._replicas.damaged.on_add = lambda: self._soon(self._damage.repair)
        self._metadata.listeners.append(self._changed)

        def changed() -> None:
            loop.call_soon_threadsafe(self._soon, self._refresh)

        def session_changed(session: StoreSession) -> None:
            loop.call_soon_threadsafe(self._session, session)

        self._store.watch(changed)
        self._store.on_session(session_changed)
        self._every(self._max_lag_ms / 2000, self._in_sync.shrink)
        self._every(
            self._settings.integer("replica.high.watermark.checkpoint.interval.ms") / 1000,
            self._save,
        )
        if self._settings.boolean("auto.leader.rebalance.enable"):
            self._every(
                self._settings.integer("leader.imbalance.check.interval.seconds"),
                self._membership.balance_leaders,
            )
        self._soon(self._stay_registered)
        self._soon(self._membership.look)
        self._soon(self._fetchers.update)
        self._soon(self._retire)
        self._soon(self._damage.repair)

    async def hand_over(self) -> None:
        """Before a stop, move leadership to other brokers, so that clients are not interrupted."""
        if self._settings.boolean("controlled.shutdown.enable"):
            try:
                self._membership.hand_over()
            except KafkaError as error:
                logger.warning("controlled shutdown failed: %s", error.message)

    def stop(self) -> None:
        """Stop the fetchers, and save the high watermarks."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        self._fetchers.stop()
        self._replicas.save_high_watermarks()

    # ------------------------------------------------------------------------- what happens

    def _changed(self, _old: Image, _new: Image) -> None:
        self._soon(self._membership.look)
        if self._replicas.isr_expansions.offsets:
            self._soon(self._in_sync.expand)

    def _refresh(self) -> None:
        self._metadata.refresh()

    def _stay_registered(self) -> None:
        """Register again if the session expired between the registration and `start`.

        There was no session listener at that time.
        """
        self._metadata.refresh()
        if not self._membership.is_registered:
            logger.warning("this broker's session expired during the start; registering again")
            self._join_again()

    def _session(self, session: StoreSession) -> None:
        if self._out_at is not None:
            self._out_at.cancel()
            self._out_at = None
        if session is StoreSession.SUSPENDED:
            self._in_sync.suspended()
            # Long enough for ZooKeeper to elect a leader of its own. If another broker takes over
            # before that, this broker acknowledges no acks=all, since it has no followers.
            timeout_s = self._settings.integer("zookeeper.session.timeout.ms") / 1000
            loop = asyncio.get_running_loop()
            self._out_at = loop.call_later(timeout_s, self._step_down)
            logger.warning(
                "the metadata store is not reachable; this broker stays leader for at most %g s",
                timeout_s,
            )
        elif session is StoreSession.EXPIRED:
            logger.warning("this broker's session expired; registering again")
            self._step_down()
            self._do(self._connected)
            self._soon(self._join_again)
        else:
            self._do(self._connected)
            if self._replicas.stepped_down:
                logger.warning(
                    "the metadata store is reachable again; this broker's session is valid"
                )
                self._soon(self._lead_again)

    def _connected(self) -> None:
        """Refresh the image before anything is written, because changes may have been missed."""
        self._metadata.refresh()
        self._in_sync.connected()
        self._soon(self._in_sync.expand)

    def _step_down(self) -> None:
        logger.warning("this broker leads no partitions until it has read the metadata again")
        self._replicas.step_down()

    def _join_again(self) -> None:
        self._metadata.refresh()
        self._rejoin()
        self._lead_again()

    def _lead_again(self) -> None:
        self._metadata.refresh()
        self._replicas.apply_again(self._metadata.image)
        self._soon(self._fetchers.update)
        self._soon(self._membership.look)

    def _retire(self) -> None:
        unfit = list(self._replicas.offline_replicas.offsets)
        if not unfit:
            return
        self._membership.retire([partition.name for partition in unfit])
        self._replicas.offline_replicas.offsets.clear()
        # If no other broker can lead, opening the log is tried again: the disk may have been full,
        # or descriptors used up.
        own = [one for one in unfit if one.leader == self._replicas.node_id and not one.leads]
        if own:
            asyncio.get_running_loop().call_later(_OPEN_AGAIN_S, self._try_to_lead, own)

    def _try_to_lead(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            if not self._stopped and not partition.closed:
                self._replicas.try_to_lead(partition, self._metadata.image)

    def _save(self) -> None:
        if self._saving is None or self._saving.done():  # otherwise the last save is still running
            loop = asyncio.get_running_loop()
            self._saving = loop.run_in_executor(self._executor, self._replicas.save_high_watermarks)
            self._saving.add_done_callback(_log_failure)

    # ------------------------------------------------------------------------ taking turns

    def _soon(self, work: Callable[[], None]) -> None:
        """Schedule the work once, after the work in progress."""
        if work not in self._due:
            self._due[work] = None
            asyncio.get_running_loop().call_soon(self._do, work)

    def _do(self, work: Callable[[], None]) -> None:
        self._due.pop(work, None)
        if self._stopped:
            return
        try:
            work()
        except KafkaError as error:
            logger.warning("cannot change the metadata at present: %s", error.message)
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._soon, work)
        except Exception:
            logger.exception("applying the cluster's changes failed; retrying")
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._soon, work)

    def _every(self, interval_s: float, work: Callable[[], None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s)
                self._soon(work)

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))


def _log_failure(done: "asyncio.Future[None]") -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        logger.error("cannot save the high watermarks; it will be retried", exc_info=error)
