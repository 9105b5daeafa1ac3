"""`headrace sql`: statements, scripts, the prompt and export."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.sql.rest.test_queries import _send, _started
from tests.sql.running import WAIT_S, RunningSql, running_sql


@pytest.fixture(scope="module")
def sql(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSql]:
    with running_sql(bootstrap, tmp_path_factory.mktemp("sql")) as running:
        yield running


@pytest.fixture
def call(run: Run, sql: RunningSql, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADRACE_SQL", str(sql.http.base_url))
    return run


@pytest.fixture
def name() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


def _create(name: str) -> str:
    return (
        f"CREATE STREAM {name} (id INT KEY, customer VARCHAR, total DECIMAL(20,2)) WITH "
        f"(kafka_topic='{name}', value_format='json', partitions=1);"
    )


def test_statements_print_tables_and_json_lines(call: Run, name: str) -> None:
    found = call("sql", "-e", _create(name), "-e", f"DESCRIBE {name} EXTENDED;")
    assert (found.code, found.err) == (0, "")
    assert "Stream created" in found.text
    assert re.search(r"total +DECIMAL\(20, 2\)", found.text)
    assert re.search(r"id +INTEGER +KEY", found.text)
    rows = call("sql", "--json", "-e", f"LIST STREAMS; DESCRIBE {name};").rows()
    assert [each["@type"] for each in rows] == ["streams", "sourceDescription"]
    every = (
        "LIST TABLES; LIST QUERIES; LIST TOPICS; LIST ALL TOPICS; LIST PROPERTIES; LIST TYPES;"
        "LIST FUNCTIONS; LIST VARIABLES; LIST STREAMS EXTENDED; LIST QUERIES EXTENDED;"
    )
    assert call("sql", "-e", every).code == 0


def test_a_script_stops_at_the_first_error(call: Run, tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner.sql"
    inner.write_text("LIST STREAMS; -- of another script\n")
    spooled = tmp_path / "out.txt"
    script = tmp_path / "script.sql"
    script.write_text(
        f"DEFINE name = '{name}';\n"
        f"{_create('${name}')}\n"
        "SET 'auto.offset.reset'='earliest';\n"
        f"SPOOL '{spooled}';\n"
        f"RUN SCRIPT '{inner}';\n"
        "SPOOL OFF;\n"
        "DROP STREAM no_such_stream;\n"
        "DROP STREAM ${name};\n"
    )
    found = call("sql", "-f", str(script))
    assert found.code == 1
    assert "error: There is no stream no_such_stream" in found.err
    assert name in spooled.read_text()
    assert name in call("sql", "-e", "LIST STREAMS;").text
    failed = call("sql", "--json", "-e", "DROP STREAM no_such_stream;")
    assert json.loads(failed.err)["error"] == {
        "code": "40001", "message": "There is no stream no_such_stream", "hint": ""
    }  # fmt: skip
    assert call("sql", "-e", "SET 'no.such'='x';").code == 1
    assert call("sql", "-f", str(tmp_path / "missing.sql")).code == 2
    assert call("sql", "-e", "DROP STREAM ${name};", "-d", f"name={name}").code == 0


def test_a_query_prints_rows_with_all_digits(call: Run, sql: RunningSql, name: str) -> None:
    call("sql", "-e", _create(name))
    select = f"SELECT id, customer, total FROM {name} EMIT CHANGES LIMIT 2;"
    insert = f"INSERT INTO {name} VALUES "
    sql.sql(f"{insert} (1, 'ann', 12345678901234567.89); {insert} (2, 'b\"b', NULL);")
    early = "SET 'auto.offset.reset'='earliest';"
    for words in ((), ("--json",)):
        found = call("sql", *words, "-e", early + select)
        assert found.code == 0, found.err
        assert "12345678901234567.89" in found.text
        if words:
            assert found.rows()[1] == {"id": 2, "customer": 'b"b', "total": None}
            assert found.text.splitlines()[0].endswith('"total": 12345678901234567.89}')
        else:
            assert "2 rows" in found.err


def test_a_server_that_is_named_and_does_not_respond_is_an_error(run: Run) -> None:
    found = run("sql", "--server", "http://127.0.0.1:1", "-e", "LIST STREAMS;")
    assert found.code == 3
    assert "headrace sql serve" in found.err
    assert run("sql", "--server", "nonsense://x", "-e", "LIST STREAMS;").code == 2


def test_a_session_without_a_server_has_one_of_its_own(
    run: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_SQL", raising=False)
    monkeypatch.setattr("headrace.cli.sql.sql.DEFAULT_SERVER", "http://127.0.0.1:1")
    words = ("sql", "--folder", str(tmp_path / "own"), "--service", name)
    found = run(*words, "-e", _create(name))
    assert found.code == 0, found.err
    assert "one is started for this command" in found.err
    # Its statements are stored.
    assert name in run(*words, "-e", "LIST STREAMS;").text
    failed = run(*words[:-1], f"{name}-other", "-e", "LIST STREAMS;")
    assert failed.code == 1
    assert "belongs to the queries of topic" in failed.err
    assert "server.log" in failed.err


def test_the_export_makes_everything_again(
    call: Run, run: Run, bootstrap: str, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, copy = f"one-{name}", f"two-{name}"
    with running_sql(bootstrap, tmp_path / "one", service) as first:
        first.sql(_create(name))
        first.sql(f"CREATE TYPE {name}_type AS STRUCT<street VARCHAR>;")
        first.sql(
            f"CREATE TABLE {name}_t (id INT PRIMARY KEY, home {name}_type) WITH "
            f"(kafka_topic='{name}_t', value_format='json', partitions=1);"
        )
        first.sql(
            f"CREATE TABLE {name}_sums AS SELECT customer, SUM(total) AS s FROM {name} "
            "GROUP BY customer;",
            streamsProperties={"auto.offset.reset": "earliest"},
        )
        (made,) = first.sql(f"CREATE STREAM {name}_copy AS SELECT id, total FROM {name};")
        first.sql(f"INSERT INTO {name}_copy SELECT id, total FROM {name};")
        first.sql(f"TERMINATE {made['commandStatus']['queryId']};")
        script = run("sql", "export", "--server", str(first.http.base_url)).text
        before = first.engine.server.catalog
    # Without a server the topic has the same.
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", bootstrap)
    monkeypatch.delenv("HEADRACE_SQL", raising=False)
    monkeypatch.setattr("headrace.cli.sql.sql.DEFAULT_SERVER", "http://127.0.0.1:1")
    of_topic = run("sql", "export", "--service", service).text
    assert of_topic.splitlines()[1:] == script.splitlines()[1:]
    assert "SET 'auto.offset.reset'='earliest';\nCREATE TABLE" in script
    file = tmp_path / "all.sql"
    file.write_text(script)
    with running_sql(bootstrap, tmp_path / "two", copy) as second:
        found = run("sql", "--server", str(second.http.base_url), "-f", str(file))
        assert found.code == 0, found.err
        after = second.engine.server.catalog
        assert [each.source for each in after.sources()] == [
            each.source for each in before.sources()
        ]
        assert [each.target for each in after.queries()] == [
            each.target for each in before.queries()
        ]
        again = run("sql", "export", "--server", str(second.http.base_url)).text
        assert _statements(again) == _statements(script)


def _statements(script: str) -> list[str]:
    return [line for line in script.splitlines() if not line.startswith("--")]


class Terminal:
    """`headrace sql` in a terminal of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._main, side = pty.openpty()
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(home),
            "COLUMNS": "120",
            "TERM": "xterm",
            "NO_COLOR": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "sql", "--server", url],
            stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(side)
        self.text = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._main, 10_000)
            except OSError:
                return
            if not found:
                return
            self.text += found.decode(errors="replace")

    def send(self, text: str) -> None:
        os.write(self._main, text.encode())

    def expect(self, pattern: str) -> None:
        """Wait for a text, and forget what was before its end."""
        _until(lambda: re.search(pattern, self.text) is not None, lambda: (pattern, self.text))
        found = re.search(pattern, self.text)
        assert found is not None
        self.text = self.text[found.end() :]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._main)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def test_the_prompt_reads_until_a_semicolon_completes_and_survives_ctrl_c(
    sql: RunningSql, tmp_path: Path, name: str
) -> None:
    sql.sql(_create(name))
    terminal = Terminal(str(sql.http.base_url), tmp_path)
    try:
        terminal.expect("sql> ")
        terminal.send("help\n")
        terminal.expect("Ctrl-C ends a query")
        terminal.expect("sql> ")
        terminal.send("LIST\n")
        terminal.expect("-> ")
        terminal.send("STREAMS;\n")
        terminal.expect(name)
        terminal.expect("sql> ")
        terminal.send("DROP STREAM nothing;\n")
        terminal.expect("There is no stream nothing")
        terminal.expect("sql> ")
        # Completion of a name, and of a word.
        terminal.send(f"DESCR\t{name[:-1]}\t;\n")
        terminal.expect(r"DECIMAL\(20, 2\)")
        terminal.expect("sql> ")
        before = len(sql.host.pushes)
        terminal.send(f"SELECT id, COUNT(*) AS n FROM {name} GROUP BY id EMIT CHANGES;\n")
        push = _started(sql, before)
        _send(sql, push, [[4711, 1]])
        terminal.expect("4711")
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.expect("The query has been ended")
        _until(lambda: push.is_closed, lambda: "the query goes on")
        terminal.expect("sql> ")
        terminal.send("watch LIST STREAMS;\n")
        terminal.expect(name)
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.expect("sql> ")
        terminal.send("exit\n")
        _until(lambda: terminal.process.poll() is not None, lambda: "exit does not end it")
        assert terminal.process.returncode == 0
    finally:
        terminal.close()
    assert "DROP STREAM nothing;" in (tmp_path / "headrace" / "sql_history").read_text()
