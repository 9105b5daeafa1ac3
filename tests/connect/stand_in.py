"""A host that only remembers, and two connectors with the options of Kafka's file connectors."""

from headrace.connect import Option, OptionError, Password, Sink, Source
from headrace.connect.hosting import ConnectorPlan, HostedStatus, Progress, RunState
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
