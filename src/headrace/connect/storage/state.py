"""What the internal topics say: replayed from their records, changed by nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.connect.storage.records import (
    CommitChange,
    Config,
    ConfigChange,
    ConnectorChange,
    GenerationChange,
    SourceOffsetChange,
    TargetChange,
    TargetState,
    TaskChange,
    TopicUse,
)


@dataclass(slots=True)
class ConnectorState:
    """One connector."""

    config: Config
    tasks: list[Config] = field(default_factory=list)


class ConfigState:
    """The connectors, as the config topic has them."""

    def __init__(self) -> None:
        self.connectors: dict[str, ConnectorState] = {}
        self.generations: dict[str, GenerationChange] = {}
        """Kept after a connector is deleted, as its offsets are."""
        self._targets: dict[str, TargetState] = {}
        self._pending_tasks: dict[str, dict[int, Config]] = {}

    def target(self, name: str) -> TargetState:
        """The state that a user wants."""
        return self._targets.get(name, TargetState.STARTED)

    def replay(self, change: ConfigChange) -> None:
        """Apply one record."""
        match change:
            case ConnectorChange(name, config):
                self._put(name, config)
            case TaskChange(name, task, config):
                self._pending_tasks.setdefault(name, {})[task] = config or {}
            case CommitChange(name, tasks):
                self._commit(name, tasks)
            case TargetChange(name, state):
                self._targets.pop(name, None)
                if state is not None:
                    self._targets[name] = state
            case GenerationChange(name):
                self.generations[name] = change

    def _put(self, name: str, config: Config | None) -> None:
        if config is None:
            self.connectors.pop(name, None)
            self._pending_tasks.pop(name, None)
        elif name in self.connectors:
            self.connectors[name].config = config
        else:
            self.connectors[name] = ConnectorState(config)

    def _commit(self, name: str, tasks: int) -> None:
        """Task records are not written atomically: an incomplete set does not count."""
        pending = self._pending_tasks.get(name, {})
        connector = self.connectors.get(name)
        if connector is None or any(task not in pending for task in range(tasks)):
            return
        connector.tasks = [pending[task] for task in range(tasks)]


class OffsetState:
    """The offsets of sources, as the offsets topic has them."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[str, SourceOffsetChange]] = {}

    def replay(self, change: SourceOffsetChange) -> None:
        """Apply one record."""
        of_connector = self._offsets.setdefault(change.connector, {})
        if change.offset is None:
            of_connector.pop(change.identity, None)
        else:
            of_connector[change.identity] = change

    def of(self, connector: str) -> list[SourceOffsetChange]:
        """The partitions of a connector with their offsets, in the order of their JSON."""
        return [change for _, change in sorted(self._offsets.get(connector, {}).items())]


class TopicState:
    """The topics that connectors use, as the status topic has them."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, TopicUse]] = {}

    def replay(self, use: TopicUse) -> None:
        """Apply one record."""
        of_connector = self._topics.setdefault(use.connector, {})
        if use.task < 0:
            of_connector.pop(use.topic, None)
        else:
            of_connector[use.topic] = use

    def of(self, connector: str) -> Iterable[str]:
        """The names of the topics of a connector."""
        return self._topics.get(connector, {}).keys()
