"""A host that only remembers, and two connectors with the options of Kafka's file connectors."""

from headrace.connect import Option, OptionError, Password, Sink, Source
from headrace.connect.hosting import ConnectorPlan, HostedStatus, Progress, RunState
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView
from headrace.service.errors import HttpError


class StandInHost:
    """Runs nothing. Tests say what it answers."""

    def __init__(self) -> None:
        self.plans: dict[str, ConnectorPlan] = {}
        self.calls: list[tuple[str, str]] = []
        self.answers: dict[str, HostedStatus] = {}
        self.refuses: set[str] = set()
        self.unreachable: set[str] = set()
        """Connectors whose start fails as if the cluster did not respond."""
        self.letter_requests: list[tuple[str, LetterView | LetterOrder]] = []
        self.letters: dict[str, dict[str, object]] = {}
        self.runs: list[dict[str, object]] = []
        """The reports of a run, one after the other."""

    def prepare(self) -> None:
        pass

    async def start(self, plan: ConnectorPlan) -> None:
        self.calls.append(("start", plan.name))
        if plan.name in self.refuses:
            raise RuntimeError("no room")
        if plan.name in self.unreachable:
            raise HttpError(500, "no broker responds")
        self.plans[plan.name] = plan

    async def stop(self, name: str) -> None:
        self.calls.append(("stop", name))
        self.plans.pop(name, None)

    async def delete(self, name: str) -> None:
        self.calls.append(("delete", name))
        self.plans.pop(name, None)

    async def status(self, name: str) -> HostedStatus:
        return self.answers.get(name, HostedStatus(RunState.RUNNING, progress=Progress(records=3)))

    async def view_letters(self, plan: ConnectorPlan, view: LetterView) -> dict[str, object]:
        self.letter_requests.append((plan.name, view))
        if "refused" in view.where:
            raise LettersRefused(f"where: {view.where} is int, not a condition")
        return self.letters[view.what]

    async def run_letters(self, plan: ConnectorPlan, order: LetterOrder) -> dict[str, object]:
        self.letter_requests.append((plan.name, order))
        if "busy" in order.where:
            raise LettersRefused(f"A run over the dead letters of {plan.name} is under way", 409)
        return self.runs[0]

    async def letter_run(self, name: str) -> dict[str, object] | None:
        if not self.runs:
            return None
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    async def leave_letters(self, name: str) -> None:
        pass

    async def stop_letters(self, plan: ConnectorPlan) -> None:
        self.calls.append(("stop letters", plan.name))

    async def close(self) -> None:
        self.plans.clear()


class FileStreamSourceConnector(Source):
    """Reads nothing."""

    options = (
        Option("file", str, None, "The file to read.", importance="high"),
        Option("topic", str, doc="The topic to write.", importance="high"),
        Option("batch.size", int, 2000, "Rows at a time.", importance="low"),
    )
    aliases = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)


class FileStreamSinkConnector(Sink):
    """Writes nothing."""

    options = (Option("file", str, None, "The file to write.", importance="high"),)
    aliases = ("org.apache.kafka.connect.file.FileStreamSinkConnector",)
    ignored = ("old.option",)


class LockedSinkConnector(Sink):
    """Needs a password, and checks it."""

    options = (
        Option("url", str, doc="Where to connect."),
        Option("password", Password, doc="How to log in."),
        Option("mode", str, "insert", "How to write.", choices=("insert", "upsert")),
    )

    password: str

    def check(self) -> None:
        if self.password == "wrong":
            raise OptionError("password", "the server refuses this password")


HERE = __name__
PLUGINS = (
    f"{HERE}:FileStreamSourceConnector",
    f"{HERE}:FileStreamSinkConnector",
    f"{HERE}:LockedSinkConnector",
)
