"""The boundary between the service, which knows what should run, and the host, which runs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from headrace.connect.letter_orders import LetterOrder, LetterView


class RunState(Enum):
    """The states of connectors and tasks, with Kafka Connect's names."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """A connector that should run."""

    name: str
    config: Mapping[str, str]
    """As it was given, with the worker's converters if it has none of its own. References to
    secrets are resolved by the host."""
    generation: int = 0
    """The number of the checkpoint. A new one begins at the committed offsets of the sink's group,
    or at the source's offsets in the offsets topic; so altering these needs a new generation."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a connector is."""

    records: int = 0
    lag: int | None = None
    last_record_at: int | None = None
    """Milliseconds since 1970."""
    restarts: int = 0
    next_try_at: int | None = None
    """Milliseconds since 1970, if it waits to be started again."""
    failed_records: int = 0
    """Records that could not be processed, since the query was started."""


@dataclass(frozen=True, slots=True)
class HostedStatus:
    """What is true of a connector at the moment of asking."""

    state: RunState
    trace: str | None = None
    progress: Progress = field(default_factory=Progress)
    tasks: int | None = None
    """How many tasks it has at a time; None if that is not known."""
    topics: Sequence[str] = ()
    """The topics that it has read from or written to, as far as they are known."""


class Host(Protocol):
    """Runs connectors as Spark queries."""

    def prepare(self) -> None:
        """Connectors will probably be started soon."""

    async def start(self, plan: ConnectorPlan) -> None:
        """Runs the connector, in place of one with this name; returns before it runs."""

    async def stop(self, name: str) -> None:
        """When it returns, the connector writes nothing more."""

    async def delete(self, name: str) -> None:
        """Stops the connector, and deletes the messages that it has received and not written."""

    async def status(self, name: str) -> HostedStatus:
        """The state of a connector that was started; UNASSIGNED while Spark starts."""

    async def view_letters(self, plan: ConnectorPlan, view: LetterView) -> dict[str, object]:
        """The dead letters of a connector that wait; LettersRefused if they cannot be shown."""

    async def run_letters(self, plan: ConnectorPlan, order: LetterOrder) -> dict[str, object]:
        """Begins a run over dead letters, or only plans it; LettersRefused if it cannot be."""

    async def letter_run(self, name: str) -> dict[str, object] | None:
        """The newest run over the dead letters of a connector; None if there was none."""

    async def leave_letters(self, name: str) -> None:
        """Ends the run, so that another worker can continue it."""

    async def stop_letters(self, plan: ConnectorPlan) -> None:
        """Gives up the run. When it returns, it writes nothing more."""

    async def close(self) -> None:
        """Stops all connectors."""
