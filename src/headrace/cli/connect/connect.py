"""`headrace connect`: workers and their connectors."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.connect import dlq
from headrace.cli.connect.config_files import read_config
from headrace.cli.connect.dev import dev
from headrace.cli.connect.new import new
from headrace.cli.connect.rest_client import DEFAULT_CONNECT, ConnectClient, ConnectOption
from headrace.cli.connect.serve import COMMAND
from headrace.cli.connect.watching import Count, Interval, Watch, watch
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.option_help import add_command
from headrace.cli.option_table import DEFAULT_BOOTSTRAP
from headrace.cli.options import AsJson, Bootstrap, ClientConfig, examples, pairs

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LOOK_S = 0.3

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace connect serve                                  a worker on localhost:8083",
        "headrace connect test orders.json                       what is wrong with it?",
        "headrace connect create orders.json",
        "headrace connect status orders",
        "headrace connect config orders --set tasks.max=4",
        "headrace connect dlq list orders                        records that failed",
    ),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of connectors.")]
ConfigArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help='JSON: {"name", "config"} or only the options; or Java properties (.properties).',
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The name, if the file has none.")
]


@app.callback()
def connect() -> None:
    """Connectors between Kafka and other systems, with Kafka Connect's REST interface."""


add_command(app, COMMAND)
app.add_typer(dlq.app, name="dlq")
app.command(
    epilog=examples(
        "headrace connect dev mine.py:Numbers --option lanes=2",
        "headrace connect dev mine.py:Numbers --epochs 3 --rows 100 --json",
        "headrace connect dev mine.py:Numbers --topic numbers --bootstrap localhost:9092",
        "headrace connect dev mine.py:Table --option path=t --input rows.jsonl --schema 'n bigint'",
        "headrace connect dev mine.py:Table --option path=t --topic numbers -b localhost:9092",
    )
)(dev)


app.command(
    epilog=examples(
        "headrace connect new OrderSource",
        "headrace connect new OrderSink --kind sink --folder orders",
    )
)(new)


@app.command(
    "list",
    epilog=examples(
        "headrace connect list",
        "headrace connect list --watch                           a live table",
        "headrace connect list --json",
    ),
)
def list_connectors(
    url: ConnectOption = DEFAULT_CONNECT,
    watched: Watch = False,
    interval: Interval = 2.0,
    count: Count = None,
    as_json: AsJson = False,
) -> None:
    """List connectors with their states."""
    client = ConnectClient(url)

    def look() -> dict[str, object]:
        return _object(client.get("connectors", expand=["status", "info"]))

    if watched:
        watch(look, _listed, interval, count, as_json)
    elif as_json:
        output.print_json(look())
    else:
        output.console().print(_listed(look()))


def _listed(found: dict[str, object]) -> "Table":
    rows = []
    for name, each in sorted(found.items()):
        status, info = _object(_object(each)["status"]), _object(_object(each)["info"])
        tasks = status["tasks"]
        assert isinstance(tasks, list)
        running = sum(task["state"] == "RUNNING" for task in tasks)
        rows.append(
            (
                name,
                str(status["type"]),
                str(_object(info["config"]).get("connector.class")),
                str(_object(status["connector"])["state"]),
                f"{running}/{len(tasks)}",
                _progress(status, "records"),
                _progress(status, "lag"),
            )
        )
    columns = ("name", "type", "class", "state", "tasks", "records", "lag")
    return output.table(columns, rows, numbers={"records", "lag"})


@app.command(epilog=examples("headrace connect plugins", "headrace connect plugins Datagen"))
def plugins(
    name: Annotated[
        str | None, typer.Argument(metavar="CLASS", help="Show the options of this class.")
    ] = None,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """List the classes that a worker has, or the options of one."""
    client = ConnectClient(url)
    path = ("connector-plugins",) if name is None else ("connector-plugins", name, "config")
    found = client.get(*path)
    assert isinstance(found, list)
    if as_json:
        output.print_json(found)
    elif name is None:
        classes = [(each["class"], each["type"], each["version"]) for each in found]
        output.print_table(("class", "type", "version"), classes)
    else:
        options = [
            (
                each["name"],
                each["type"].lower(),
                "required" if each["required"] else each["default_value"] or "",
                each["documentation"],
            )
            for each in found
        ]
        output.print_table(("option", "type", "default", "description"), options)


@app.command(
    epilog=examples(
        "headrace connect create orders.json --wait",
        "headrace connect create options.json --name orders --state STOPPED",
    )
)
def create(
    file: ConfigArgument,
    name: NameOption = None,
    state: Annotated[
        str, typer.Option("--state", help="RUNNING, PAUSED or STOPPED.", metavar="STATE")
    ] = "RUNNING",
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until it runs. Exit code 1 if it fails."),
    ] = False,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Create a connector from a file."""
    given, config = read_config(file, name)
    body = {"name": given, "config": config, "initial_state": state.upper()}
    client = ConnectClient(url)
    with output.console(error=True).status(f"{given}: the worker checks the configuration"):
        made = client.post("connectors", body=body)
    if as_json:
        output.print_json(made)
    else:
        output.note(f"created {given}; `headrace connect status {given}` shows how it is doing")
    if wait and state.upper() == "RUNNING":
        _wait_until_it_runs(client, given)


def _wait_until_it_runs(client: ConnectClient, name: str) -> None:
    """Shows the state meanwhile; a Failure with the error if the connector fails."""
    with output.console(error=True).status(f"{name}: UNASSIGNED") as shown:
        while True:
            found = _object(client.get("connectors", name, "status"))
            state, tasks = _state(found), found["tasks"]
            assert isinstance(tasks, list)
            running = sum(task["state"] == "RUNNING" for task in tasks)
            if state == "RUNNING" and tasks and running == len(tasks):
                break
            trace = str(_object(found["connector"]).get("trace") or "")
            if state == "FAILED":
                raise Failure(f"{name} has failed: {trace}")
            first = trace.partition("\n")[0]
            shown.update(f"{name}: {state} {first}".rstrip())
            time.sleep(LOOK_S)
    output.note(f"{name} runs with {running} of {len(tasks)} tasks")


@app.command(
    epilog=examples(
        "headrace connect config orders",
        "headrace connect config orders --set tasks.max=4 --unset transforms",
        "headrace connect config orders --file orders.json          replaces all options",
    )
)
def config(
    name: Name,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Change an option.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--unset", metavar="OPTION", help="Remove an option.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Replace all options.")
    ] = None,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Show or change the configuration of a connector."""
    client = ConnectClient(url)
    changes: dict[str, str | None] = {**pairs(assignments or [], "--set")}
    changes |= dict.fromkeys(removed or ())
    if file is not None and changes:
        raise bad_usage("--file replaces all options; leave --set and --unset out")
    if file is not None:
        _, wanted = read_config(file, name)
        found = _object(_object(client.put("connectors", name, "config", body=wanted))["config"])
    elif changes:
        answer = client.patch("connectors", name, "config", body=changes)
        found = _object(_object(answer)["config"])
    else:
        found = _object(client.get("connectors", name, "config"))
    if as_json:
        output.print_json(found)
    else:
        output.print_facts({option: str(text) for option, text in sorted(found.items())})


@app.command(
    epilog=examples(
        "headrace connect status orders",
        "headrace connect status orders --watch                  a live table",
    )
)
def status(
    name: Name,
    url: ConnectOption = DEFAULT_CONNECT,
    watched: Watch = False,
    interval: Interval = 2.0,
    count: Count = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a connector and its tasks. Exit code 1 if it has failed."""
    client = ConnectClient(url)

    def look() -> dict[str, object]:
        return _object(client.get("connectors", name, "status"))

    if watched:
        watch(look, _described, interval, count, as_json)
        return
    found = look()
    if as_json:
        output.print_json(found)
    else:
        output.console().print(_described(found))
    if _state(found) == "FAILED":
        raise typer.Exit(1)


def _state(status: dict[str, object]) -> str:
    return str(_object(status["connector"])["state"])


def _described(status: dict[str, object]) -> "RenderableType":
    """The state of a connector with its tasks."""
    from rich.console import Group

    connector = _object(status["connector"])
    facts = {
        "name": str(status["name"]),
        "type": str(status["type"]),
        "state": str(connector["state"]),
        "worker": str(connector["worker_id"]),
        "records": _progress(status, "records"),
        "lag": _progress(status, "lag"),
        "restarts": _progress(status, "restarts"),
    }
    if "trace" in connector:
        facts["error"] = str(connector["trace"])
    tasks = status["tasks"]
    assert isinstance(tasks, list)
    rows = [(str(task["id"]), task["state"], task["worker_id"]) for task in tasks]
    listed = output.table(("task", "state", "worker"), rows, numbers={"task"})
    return Group(output.facts(facts), listed)


def _each(names: list[str], url: str, method: str, action: str, done: str) -> None:
    client = ConnectClient(url)
    for name in names:
        client.send(method, ("connectors", name, action) if action else ("connectors", name))
        output.note(f"{done} {name}")


@app.command(epilog=examples("headrace connect pause orders clicks"))
def pause(names: Names, url: ConnectOption = DEFAULT_CONNECT) -> None:
    """Pause connectors. Their tasks stay listed."""
    _each(names, url, "PUT", "pause", "paused")


@app.command(epilog=examples("headrace connect resume orders"))
def resume(names: Names, url: ConnectOption = DEFAULT_CONNECT) -> None:
    """Let paused or stopped connectors run."""
    _each(names, url, "PUT", "resume", "resumed")


@app.command(epilog=examples("headrace connect stop orders"))
def stop(names: Names, url: ConnectOption = DEFAULT_CONNECT) -> None:
    """Stop connectors. Only then their offsets can be changed."""
    _each(names, url, "PUT", "stop", "stopped")


@app.command(epilog=examples("headrace connect delete orders"))
def delete(names: Names, url: ConnectOption = DEFAULT_CONNECT) -> None:
    """Delete connectors. Their offsets are kept."""
    _each(names, url, "DELETE", "", "deleted")


@app.command(epilog=examples("headrace connect restart orders --failed"))
def restart(
    names: Names,
    only_failed: Annotated[
        bool, typer.Option("--failed", help="Only if the connector has failed.")
    ] = False,
    url: ConnectOption = DEFAULT_CONNECT,
) -> None:
    """Restart connectors with their tasks."""
    client = ConnectClient(url)
    for name in names:
        flags = {"includeTasks": "true", "onlyFailed": str(only_failed).lower()}
        found = _object(client.post("connectors", name, "restart", **flags))
        output.note(f"{name}: {_object(found['connector'])['state']}")


@app.command(
    epilog=examples(
        "headrace connect offsets orders",
        "headrace connect offsets orders --json > offsets.json",
        "headrace connect offsets orders --alter offsets.json      the connector must be stopped",
        "headrace connect offsets orders --reset",
    )
)
def offsets(
    name: Name,
    alter: Annotated[
        str | None,
        typer.Option("--alter", metavar="FILE", help="Set the offsets in this JSON file."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget all offsets.")] = False,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Show, set or reset the offsets of a connector."""
    client = ConnectClient(url)
    if alter is not None and reset:
        raise bad_usage("use one of --alter and --reset")
    if alter is not None:
        body = _json_file(alter)
        output.note(str(_object(client.patch("connectors", name, "offsets", body=body))["message"]))
        return
    if reset:
        output.note(str(_object(client.delete("connectors", name, "offsets"))["message"]))
        return
    found = _object(client.get("connectors", name, "offsets"))
    if as_json:
        output.print_json(found)
        return
    entries = found["offsets"]
    assert isinstance(entries, list)
    rows = [(_fields(each["partition"]), _fields(each["offset"])) for each in entries]
    output.print_table(("partition", "offset"), rows)


@app.command(
    "test",
    epilog=examples("headrace connect test orders.json          exit code 1 if it has errors"),
)
def validate(
    file: ConfigArgument,
    name: NameOption = None,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Validate a configuration: its options, and whether the other system can be reached."""
    given, wanted = read_config(file, name)
    kind = wanted.get("connector.class")
    if not kind:
        raise bad_usage(f"{file} has no connector.class")
    path = ("connector-plugins", str(kind), "config", "validate")
    found = _object(ConnectClient(url).put(*path, body=wanted))
    configs = found["configs"]
    assert isinstance(configs, list)
    errors = [
        (each["value"]["name"], error) for each in configs for error in each["value"]["errors"]
    ]
    if as_json:
        output.print_json({"name": given, "errors": [{"option": o, "error": e} for o, e in errors]})
    elif errors:
        output.print_table(("option", "error"), errors)
    else:
        output.note(f"{given} is valid")
    if errors:
        raise typer.Exit(1)


@app.command(
    epilog=examples("headrace connect adopt --config-topic connect-configs --group connect-cluster")
)
def adopt(
    config_topic: Annotated[
        str, typer.Option("--config-topic", metavar="TOPIC", help="Its config.storage.topic.")
    ] = "connect-configs",
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="Its group.id.")
    ] = "connect-cluster",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Tell which connectors of a stopped Kafka Connect cluster this one can run.

    Nothing is changed. If the answer suits you, start a worker on the same topics: `headrace
    connect serve --set config.storage.topic=... --set offset.storage.topic=... --set
    status.storage.topic=...`.
    """
    from headrace.cli import client
    from headrace.connect.adoption import ConnectIsRunning, NoSuchTopic, adoptable

    with client.admin(client.connect(bootstrap, client_config)) as cluster:
        try:
            found = adoptable(cluster, config_topic, group)
        except (ConnectIsRunning, NoSuchTopic) as error:
            raise Failure(str(error)) from None
    if as_json:
        output.print_json([each._asdict() for each in found])
    else:
        rows = [
            (each.name, each.connector_class, each.state, "; ".join(each.problems) or "yes")
            for each in found
        ]
        output.print_table(("name", "class", "state", "runs here"), rows)
    if any(each.problems for each in found):
        raise typer.Exit(1)


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict), f"the worker sent {value!r}"
    return value


def _fields(value: object) -> str:
    if not isinstance(value, dict):
        return "-"
    return ", ".join(f"{name}={each}" for name, each in value.items())


def _progress(status: dict[str, object], name: str) -> str:
    """A number of `progress`, which Kafka's own workers do not have."""
    progress = status.get("progress")
    found = progress.get(name) if isinstance(progress, dict) else None
    return output.number(found if isinstance(found, int) else None)


def _json_file(path: str) -> object:
    import json
    from pathlib import Path

    try:
        found: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise bad_usage(f"{path} cannot be read as JSON: {error}") from None
    return found
