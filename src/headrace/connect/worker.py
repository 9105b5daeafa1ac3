"""A Connect worker without HTTP: what requests read and change.

A request writes records to the config topic; replaying them changes the state, and `runner.py`
carries the state out. Requests for one connector take turns, so none is refused because of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace import __version__
from headrace.connect import offsets
from headrace.connect.errors import already_exists, bad_request, not_found
from headrace.connect.hosting import Host, HostedStatus
from headrace.connect.letters import ConnectorLetters
from headrace.connect.observer import StatusObserver
from headrace.connect.plugins import Plugin, Plugins, UnknownPlugin
from headrace.connect.runner import ConnectorRunner, WorkerOptions
from headrace.connect.secrets import mask, unmask
from headrace.connect.sharing.forwarding import Forwarder
from headrace.connect.sharing.member import MemberOptions, SlotMember
from headrace.connect.sharing.ownership import SlotOwnership
from headrace.connect.sharing.slots import slot_of
from headrace.connect.storage.records import (
    Config,
    ConfigChange,
    ConnectorChange,
    OffsetEntry,
    SourceOffsetChange,
    TargetChange,
    TargetState,
)
from headrace.connect.storage.state import ConnectorState
from headrace.connect.storage.store import ConnectStore
from headrace.connect.validation import Validation, secret_options, validate


class ConnectWorker:
    """The connectors of a cluster. Methods run in the event loop; those that change a connector
    raise NotOwner unless this worker runs it."""

    version = __version__

    def __init__(
        self,
        store: ConnectStore,
        host: Host,
        plugins: Plugins,
        options: WorkerOptions,
        forwarder: Forwarder,
    ) -> None:
        self.forwarder = forwarder
        self.store = store
        self.plugins = plugins
        self.options = options
        self.ownership = SlotOwnership(
            store.refresh_configs, lambda slots: self.runner.settle_slots(slots)
        )
        self.runner = ConnectorRunner(store, host, plugins, options, self.ownership.owns)
        self.letters = ConnectorLetters(store, host, self.runner)
        self._observer = StatusObserver(store, self.runner, options, self.ownership.owns)

    async def start(self) -> None:
        """Reads the topics and joins the group, which assigns connectors to this worker;
        StartFailure if the topics cannot be read."""
        await self.store.start()
        await self.runner.start()
        self._observer.start()
        options = self.options
        member = MemberOptions(
            options.group,
            self.store.slots_topic,
            options.address.worker_id,
            options.address.url,
            options.session_timeout_ms,
            options.heartbeat_interval_ms,
        )
        self.ownership.start(
            SlotMember(options.client, member, self._occupied, self.ownership.take)
        )

    def _occupied(self) -> frozenset[int]:
        return frozenset(map(slot_of, list(self.store.configs.connectors)))

    async def stop(self) -> None:
        """Stops the connectors before the group assigns them to other workers."""
        await self._observer.stop()
        await self.runner.stop()
        await self.ownership.stop()
        self.forwarder.close()
        await self.store.stop()

    # --------------------------------------------------------------------------------- reading

    def connector(self, name: str) -> ConnectorState:
        """The connector; 404 if there is none."""
        found = self.store.configs.connectors.get(name)
        if found is None:
            raise not_found(f"Connector {name} not found")
        return found

    async def status(self, name: str) -> HostedStatus:
        """The state of a connector, as it is now."""
        return await self.runner.status(name)

    def plugin(self, config: Mapping[str, str | None]) -> Plugin:
        """The class of a configuration; 400 if it names none."""
        name = config.get("connector.class")
        if not name:
            fields = ", ".join(f"{option}={text}" for option, text in config.items())
            raise bad_request(f"Connector config {{{fields}}} contains no connector type")
        try:
            return self.plugins.find(name)
        except UnknownPlugin as error:
            raise bad_request(str(error)) from None

    def _installed(self, config: Config) -> Plugin | None:
        try:
            return self.plugins.find(config.get("connector.class", ""))
        except UnknownPlugin:
            return None

    def type_of(self, config: Config) -> str:
        """`source`, `sink` or `unknown`."""
        return self.runner.type_of(config)

    def version_of(self, config: Config) -> str:
        """The version of the connector's class; empty if it is not installed."""
        plugin = self._installed(config)
        return "" if plugin is None else plugin.version

    def shown(self, config: Config) -> Config:
        """A configuration for responses, with passwords hidden unless they may be shown."""
        plugin = self._installed(config)
        if self.options.shows_secrets or plugin is None:
            return config
        return mask(config, secret_options(plugin, config))

    # --------------------------------------------------------------------------------- changes

    async def validate(self, config: Mapping[str, str | None]) -> Validation:
        """All errors of a configuration."""
        options = self.options
        return await validate(self.plugin(config), config, options.defaults, options.secrets)

    async def create(
        self, name: str, config: Mapping[str, str | None], target: TargetState | None
    ) -> ConnectorState:
        """A new connector; 409 if there is one with this name, 400 if it is invalid."""
        async with self.runner.owned_turn(name):
            checked = await self._checked(config)
            if name in self.store.configs.connectors:
                raise already_exists(f"Connector {name} already exists")
            changes: list[ConfigChange] = [ConnectorChange(name, checked)]
            if target is not None:
                changes.insert(0, TargetChange(name, target))
            await self.store.write_configs(*changes)
        return ConnectorState(checked)

    async def put(self, name: str, config: Mapping[str, str | None]) -> tuple[ConnectorState, bool]:
        """The connector with its new configuration, and whether it is new."""
        async with self.runner.owned_turn(name):
            found = self.store.configs.connectors.get(name)
            return await self._replace(name, found, config), found is None

    async def patch(self, name: str, changes: Mapping[str, str | None]) -> ConnectorState:
        """Change some options; None removes one (KIP-477)."""
        async with self.runner.owned_turn(name):
            found = self.connector(name)
            merged = {**found.config, **changes}
            config = {option: text for option, text in merged.items() if text is not None}
            return await self._replace(name, found, config)

    async def _replace(
        self, name: str, found: ConnectorState | None, config: Mapping[str, str | None]
    ) -> ConnectorState:
        stored = {} if found is None else found.config
        given = {option: text for option, text in config.items() if text is not None}
        checked = await self._checked({**config, **unmask(given, stored)})
        await self.store.write_configs(ConnectorChange(name, checked))
        return ConnectorState(checked, [] if found is None else found.tasks)

    async def _checked(self, config: Mapping[str, str | None]) -> Config:
        found = await self.validate(config)
        if errors := found.errors:
            text = "\n".join(errors)
            raise bad_request(
                "Connector configuration is invalid and contains the following "
                f"{len(errors)} error(s):\n{text}\nYou can also find the above list of errors at "
                "the endpoint `/connector-plugins/{connectorType}/config/validate`"
            )
        return {option: text for option, text in config.items() if text is not None}

    async def delete(self, name: str) -> None:
        """Returns when the connector writes nothing more."""
        async with self.runner.owned_turn(name):
            self.connector(name)
            await self.store.write_configs(ConnectorChange(name, None), TargetChange(name, None))
        await self.runner.settle(name)

    async def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop; returns when that is stored."""
        async with self.runner.owned_turn(name):
            if name not in self.store.configs.connectors:
                raise not_found(f"Unknown connector {name}")
            if self.store.configs.target(name) is not target:
                await self.store.write_configs(TargetChange(name, target))

    # --------------------------------------------------------------------------------- offsets

    async def offsets(self, name: str) -> Sequence[OffsetEntry]:
        """The offsets of a connector, as they are now."""
        return await self.runner.offsets(name, self.connector(name).config)

    async def alter_offsets(self, name: str, given: Sequence[OffsetEntry]) -> None:
        """Set the offsets of a stopped connector; None deletes one."""
        await self.runner.settle(name)
        async with self.runner.owned_turn(name):
            config = self._stopped(name).config
            if self.type_of(config) == "sink":
                group, wanted = offsets.group_of(name, config), offsets.parse_sink_offsets(given)
                await self.runner.ask(lambda cluster: offsets.set_sink(cluster, group, wanted))
            else:
                await self.store.refresh_offsets()
                await self.store.write_offsets(_changes(name, self.store.offsets.of(name), given))
            await self.runner.begin_generation(name, config)

    async def reset_offsets(self, name: str) -> None:
        """Forget the offsets of a stopped connector."""
        await self.runner.settle(name)
        async with self.runner.owned_turn(name):
            config = self._stopped(name).config
            if self.type_of(config) == "sink":
                group = offsets.group_of(name, config)
                await self.runner.ask(lambda cluster: offsets.delete_sink(cluster, group))
            else:
                await self.store.refresh_offsets()
                gone = [replace(each, offset=None) for each in self.store.offsets.of(name)]
                await self.store.write_offsets(gone)
            await self.runner.begin_generation(name, config)

    def _stopped(self, name: str) -> ConnectorState:
        """The connector, which neither should run nor still does; 400 otherwise."""
        found = self.connector(name)
        target = self.store.configs.target(name)
        if target is not TargetState.STOPPED or self.runner.is_running(name):
            raise bad_request(
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint"
            )
        return found


def _changes(
    name: str, stored: Sequence[SourceOffsetChange], given: Sequence[OffsetEntry]
) -> list[SourceOffsetChange]:
    """The records for altered offsets, with the keys of those that they replace."""
    keys = {each.identity: each.key for each in stored}
    changes = [SourceOffsetChange(name, partition, offset) for partition, offset in given]
    return [replace(change, key=keys.get(change.identity)) for change in changes]
