"""The prompt: lines until a semicolon, completion, history."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from headrace.cli.failures import ExitCode, Failure
from headrace.cli.sql.shell import SqlShell

PROMPT, MORE = "sql> ", "  -> "
HISTORY_LINES = 5000
WATCH_S = 1.0
HELP = """\
Statements end with a semicolon and may have several lines. Ctrl-C ends a query.

  CREATE STREAM name (id INT KEY, ...) WITH (kafka_topic='t', value_format='json');
  CREATE TABLE name AS SELECT ... GROUP BY ... EMIT CHANGES;
  SELECT ... EMIT CHANGES;             rows as they come (push query)
  SELECT ... FROM table;               what is there now (pull query)
  INSERT INTO name VALUES (...);
  LIST STREAMS | TABLES | QUERIES | TOPICS | PROPERTIES | FUNCTIONS | TYPES | CONNECTORS;
  DESCRIBE name [EXTENDED];            EXPLAIN query;
  PAUSE | RESUME | TERMINATE query;    DROP STREAM | TABLE name [DELETE TOPIC];
  PRINT 'topic' FROM BEGINNING;
  SET 'auto.offset.reset'='earliest';  DEFINE name='value';
  RUN SCRIPT 'file';                   SPOOL 'file'; ... SPOOL OFF;

Without a semicolon: help, exit, and `watch STATEMENT;`, which repeats a statement such as
LIST QUERIES every second.
"""


def history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "headrace" / "sql_history"


class Completion:
    """Completes words of SQL, and names of what the server has."""

    def __init__(self, shell: SqlShell) -> None:
        self._shell = shell
        self._names: list[str] | None = None
        self._found: list[str] = []

    def forget(self) -> None:
        """A statement may have changed what there is."""
        self._names = None

    def complete(self, text: str, state: int) -> str | None:
        """As readline asks: the match with this number."""
        if state == 0:
            self._found = self._matches(text)
        return self._found[state] if state < len(self._found) else None

    def _matches(self, text: str) -> list[str]:
        if self._names is None:
            # Completion must never end a prompt.
            with contextlib.suppress(Failure, KeyError):
                self._names = self._ask()
        from headrace.sql.language.words import (
            FUNCTION_NAMES,
            KEYWORDS,
            PROPERTY_NAMES,
            STATEMENT_STARTS,
        )

        wanted = text.casefold()
        # Words one by one: what is completed has no spaces.
        phrases = " ".join((*STATEMENT_STARTS, *KEYWORDS)).split()
        words = dict.fromkeys([*phrases, *FUNCTION_NAMES])
        shown = [word.lower() if text.islower() else word for word in words]
        names = dict.fromkeys((*(self._names or ()), *shown, *PROPERTY_NAMES))
        found = [each for each in names if each.casefold().startswith(wanted)]
        return [f"{found[0]} "] if len(found) == 1 else found

    def _ask(self) -> list[str]:
        names: list[str] = []
        streams, tables, queries = (
            self._shell.client.run(f"LIST {kind};", {}, {})[0][kind.lower()]
            for kind in ("STREAMS", "TABLES", "QUERIES")
        )
        names += (each["name"] for each in (*streams, *tables))
        names += (each["id"] for each in queries)
        return sorted(set(names))


class SqlPrompt:
    """Reads statements from a terminal and runs them."""

    def __init__(self, shell: SqlShell) -> None:
        self._shell = shell
        self._completion = Completion(shell)

    def run(self) -> None:
        """Until `exit`, or the end of the input."""
        with _readline(self._completion):
            text = ""
            while True:
                try:
                    line = input(MORE if text else PROMPT)
                except EOFError:
                    print()
                    return
                except KeyboardInterrupt:
                    print()
                    text = ""
                    continue
                if not text and self._is_exit(line):
                    return
                if not text and self._command(line):
                    continue
                text += f"{line}\n"
                if self._is_whole(text):
                    self._run(text)
                    text = ""

    @staticmethod
    def _is_exit(line: str) -> bool:
        return line.strip().rstrip(";").lower() in ("exit", "quit")

    def _command(self, line: str) -> bool:
        """Whether the line was one of the prompt's own commands."""
        words = line.strip().rstrip(";")
        if not words:
            return True
        if words.lower() in ("help", "?"):
            print(HELP)
            return True
        if re.match(r"(?i)watch\s", words):
            self._watch(words[len("watch") :].strip())
            return True
        return False

    @staticmethod
    def _is_whole(text: str) -> bool:
        from headrace.sql.language.errors import SqlError, Unfinished
        from headrace.sql.language.script import ends_statement

        try:
            return ends_statement(text)
        except Unfinished:
            return False
        except SqlError:
            return True

    def _run(self, text: str) -> None:
        try:
            self._shell.run(text)
        except Failure as failure:
            _report(failure)
        except KeyboardInterrupt:
            print()
        self._completion.forget()

    def _watch(self, statement: str) -> None:
        """Repeats a statement on the same lines, until Ctrl-C."""
        from rich.console import Group
        from rich.live import Live

        from headrace.cli import output
        from headrace.cli.sql.rendering import rendered

        try:
            with Live(console=output.console(), auto_refresh=False) as live:
                while True:
                    results = self._shell.results(statement)
                    live.update(Group(*map(rendered, results)), refresh=True)
                    time.sleep(WATCH_S)
        except KeyboardInterrupt:
            print()
        except Failure as failure:
            _report(failure)


def _report(failure: Failure) -> None:
    from headrace.cli import output

    console = output.console(error=True)
    console.print(failure.message, style="red", markup=False)
    if failure.hint and failure.exit_code is ExitCode.UNREACHABLE:
        console.print(failure.hint, style="dim", markup=False)


@contextlib.contextmanager
def _readline(completion: Completion) -> Iterator[None]:
    """Line editing with history and completion, as far as this Python has it."""
    try:
        import readline
    except ImportError:
        yield
        return
    place = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(place)
    readline.set_history_length(HISTORY_LINES)
    readline.set_completer(completion.complete)
    readline.set_completer_delims(" \t\n,;()<>='\"`")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(place)


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
