"""Help, version and completion of `headrace`, and the modules that they import."""

import subprocess
import sys

import pytest

from headrace import __version__
from headrace.cli import app
from tests.cli.conftest import Run, execute

COMMANDS = [
    ("serve",),
    ("topics",),
    ("topics", "list"),
    ("topics", "create"),
    ("topics", "describe"),
    ("topics", "alter"),
    ("topics", "delete"),
    ("topics", "add-partitions"),
    ("produce",),
    ("consume",),
    ("offsets",),
    ("groups",),
    ("groups", "list"),
    ("groups", "describe"),
    ("groups", "reset-offsets"),
    ("groups", "delete"),
    ("groups", "watch"),
    ("transactions",),
    ("transactions", "list"),
    ("transactions", "describe"),
    ("transactions", "abort"),
    ("spark",),
    ("spark", "run"),
    ("spark", "shell"),
    ("spark", "queries"),
    ("spark", "pipelines"),
    ("spark", "pipelines", "init"),
    ("spark", "pipelines", "dry-run"),
    ("spark", "pipelines", "run"),
    ("console",),
    ("connect",),
    ("connect", "serve"),
    ("connect", "new"),
    ("connect", "dev"),
    ("connect", "list"),
    ("connect", "plugins"),
    ("connect", "create"),
    ("connect", "config"),
    ("connect", "status"),
    ("connect", "pause"),
    ("connect", "resume"),
    ("connect", "stop"),
    ("connect", "delete"),
    ("connect", "restart"),
    ("connect", "offsets"),
    ("connect", "test"),
    ("connect", "adopt"),
    ("sql",),
    ("sql", "serve"),
    ("sql", "export"),
    ("registry",),
    ("registry", "serve"),
    ("schemas",),
    ("schemas", "list"),
    ("schemas", "get"),
    ("schemas", "register"),
    ("schemas", "check"),
    ("schemas", "diff"),
    ("schemas", "delete"),
    ("schemas", "config"),
    ("security",),
    ("security", "init"),
    ("security", "check"),
    ("security", "renew"),
    ("users",),
    ("users", "list"),
    ("users", "add"),
    ("users", "password"),
    ("users", "delete"),
    ("acls",),
    ("acls", "list"),
    ("acls", "add"),
    ("acls", "remove"),
    ("acls", "explain"),
    ("acls", "suggest"),
    ("tokens",),
    ("tokens", "list"),
    ("tokens", "create"),
    ("tokens", "renew"),
    ("tokens", "delete"),
    ("configs",),
    ("configs", "describe"),
    ("configs", "set"),
    ("quotas",),
    ("quotas", "list"),
    ("quotas", "set"),
    ("quotas", "remove"),
    ("cluster",),
    ("cluster", "describe"),
    ("lake",),
    ("lake", "verify"),
    ("log",),
    ("log", "dump"),
    ("bench",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_of_itself(
    here: Run, words: tuple[str, ...]
) -> None:
    result = here(*words, "--help")
    assert result.code == 0
    before, heading, examples = result.text.partition("Examples")
    assert heading
    assert f"headrace {' '.join(words)}" in examples
    assert "Exit codes" in examples
    assert "Usage: headrace" in before


def test_the_list_of_commands_here_is_complete() -> None:
    groups = {words[0] for words in COMMANDS}
    assert groups == set(app.ENTRIES)


def test_help_fits_one_screen_and_lists_every_command(here: Run) -> None:
    result = here("--help")
    assert result.code == 0
    for name, entry in app.ENTRIES.items():
        assert f" {name} " in result.text
        assert entry.summary in result.text
    assert "HEADRACE_BOOTSTRAP" in result.text
    assert "3 cluster unreachable" in result.text
    assert len(result.text.splitlines()) <= 60


def test_without_a_command_the_help_is_shown(here: Run) -> None:
    assert "Examples" in here().text


def test_version_is_the_package_s(here: Run) -> None:
    assert here("--version").text == f"headrace {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("topcis",),
        ("topics", "create"),
        ("consume", "t", "--count", "0"),
        ("topics", "list", "--x"),
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_2_and_leaves_stdout_empty(here: Run, words: tuple[str, ...]) -> None:
    result = here(*words)
    assert (result.code, result.out) == (2, b"")
    assert "Error" in result.err


def test_a_cluster_that_is_not_there_is_one_clear_line_and_exit_code_3() -> None:
    result = execute("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert (result.code, result.out) == (3, b"")
    first, hint = result.err.splitlines()
    assert first == "error: no Kafka cluster at 127.0.0.1:1: connection refused"
    assert "headrace serve" in hint


def test_with_json_errors_are_json_too(here: Run) -> None:
    import json

    result = here("topics", "list", "--bootstrap", "127.0.0.1:1", "--json")
    assert (result.code, result.out) == (3, b"")
    assert json.loads(result.err)["error"]["code"] == "UNREACHABLE"


def test_a_server_that_does_not_speak_kafka_is_unreachable_too(here: Run) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # Accepts connections in its backlog and never says a word.
        result = here("topics", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert result.code == 3
    assert f"127.0.0.1:{port}" in result.err
    assert "Traceback" not in result.err


def test_an_address_without_a_port_number_is_bad_usage(here: Run) -> None:
    assert here("topics", "list", "--bootstrap", "localhost:http").code == 2


def _loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_serve_loads_neither_typer_nor_rich_nor_the_client() -> None:
    loaded = _loaded(
        "from headrace.cli import main\nfrom headrace.cli.broker import serve\n"
        "serve.make_plan(['--listen', '0.0.0.0:1'], {})"
    )
    assert "headrace.cli.broker.serve" in loaded
    heavy = {"typer", "rich", "confluent_kafka", "asyncio", "kio", "json", "argparse"}
    assert not loaded & heavy


def test_the_commands_definitions_load_neither_the_client_nor_tables() -> None:
    loaded = _loaded("from headrace.cli import app\napp.build()")
    assert "headrace.cli.topics.topics" in loaded
    assert not loaded & {"confluent_kafka", "rich.table", "kio"}


def test_a_chosen_command_loads_only_its_own_module() -> None:
    loaded = _loaded("from headrace.cli import app\napp.build('offsets')")
    assert "headrace.cli.records.offsets" in loaded
    assert "headrace.cli.topics.topics" not in loaded


def _complete(line: str, bootstrap: str = "127.0.0.1:1") -> str:
    done = execute(
        env={
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "HEADRACE_BOOTSTRAP": bootstrap,
        }
    )
    return done.text


def test_the_shell_completes_commands_and_options() -> None:
    assert _complete("headrace con").split() == ["console", "connect", "consume", "configs"]
    assert "--data-dir" in _complete("headrace serve --d")


def test_the_shell_completes_topic_names(bootstrap: str, topic: str) -> None:
    assert _complete(f"headrace consume {topic[:-2]}", bootstrap).split() == [topic]


def test_completion_is_silent_without_a_cluster() -> None:
    assert _complete("headrace consume cl").strip() == ""
