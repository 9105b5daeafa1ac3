"""Runs statements against a server and prints their results: for the prompt, -e and -f."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headrace.cli.failures import Failure, bad_usage
from headrace.cli.sql.rendering import GrowingTable, rendered
from headrace.cli.sql.rest_client import SqlClient, StatementFailed

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.sql.language.statements import Statement

QUERIES = ("SELECT", "WITH", "PRINT")
LOCAL = ("SET", "UNSET", "DEFINE", "UNDEFINE", "RUN", "SPOOL")
"""Statements that the client carries out itself."""
DEEPEST_SCRIPT = 20


class SqlShell:
    """A session: properties, variables, and where output goes."""

    def __init__(self, client: SqlClient, *, as_json: bool = False) -> None:
        self.client = client
        self.as_json = as_json
        self.properties: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self._spool: IO[str] | None = None

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def run_file(self, path: str, depth: int = 0) -> None:
        """Run a script; a Failure at the first statement that fails."""
        if depth > DEEPEST_SCRIPT:
            raise Failure(f"scripts run each other more than {DEEPEST_SCRIPT} levels deep")
        try:
            text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise bad_usage(f"{path} cannot be read: {error}") from None
        self.run(text, depth)

    def run(self, text: str, depth: int = 0) -> None:
        """Run the statements of a text, in order; a Failure at the first one that fails."""
        from headrace.sql.language.errors import SqlError
        from headrace.sql.language.script import split

        try:
            statements = split(text)
        except SqlError as error:
            raise Failure(str(error), code="40001") from None
        for statement in statements:
            self._run_one(statement, depth)

    def _run_one(self, statement: str, depth: int) -> None:
        first = statement.split(None, 1)[0].upper()
        if first in LOCAL:
            self._run_local(self._parsed(statement), depth)
        elif first.lstrip("(") in QUERIES:
            self._query(statement)
        else:
            self._print_results(statement)

    def _parsed(self, statement: str) -> "Statement":
        from headrace.sql.language.errors import SqlError
        from headrace.sql.language.parsing import parse
        from headrace.sql.language.script import substitute

        try:
            return parse(substitute(statement, self.variables))
        except SqlError as error:
            raise Failure(str(error), code="40001") from None

    def _run_local(self, statement: "Statement", depth: int) -> None:
        from headrace.sql.language import statements as sql

        match statement:
            case sql.SetProperty(name=name, value=value):
                # The server knows which properties there are.
                self.client.run("LIST VARIABLES;", {**self.properties, name: value}, {})
                self.properties[name] = value
            case sql.UnsetProperty(name=name):
                self.properties.pop(name, None)
            case sql.DefineVariable(name=name, value=value):
                self.variables[name] = value
            case sql.UndefineVariable(name=name):
                self.variables.pop(name, None)
            case sql.RunScript(path=path):
                self.run_file(path, depth + 1)
            case sql.SpoolOutput(path=path):
                self.close()
                if path is not None:
                    try:
                        self._spool = open(path, "a", encoding="utf-8")  # noqa: SIM115
                    except OSError as error:
                        raise bad_usage(f"{path} cannot be written: {error.strerror}") from None

    # --------------------------------------------------------------------------------- results

    def results(self, statement: str) -> list[dict[str, Any]]:
        """The results of a statement that is not a query."""
        return self.client.run(f"{statement};", self.properties, self.variables)

    def _print_results(self, statement: str) -> None:
        try:
            self.show(self.results(statement))
        except StatementFailed as failure:
            self.show(failure.done)
            raise

    def show(self, results: list[dict[str, Any]]) -> None:
        for result in results:
            if self.as_json:
                self._print_line(json.dumps(result, ensure_ascii=False))
            else:
                for console in self._consoles():
                    console.print(rendered(result))
        compared = [each["comparison"] for each in results if each["@type"] == "comparison"]
        if not all(each["equal"] for each in compared):
            raise Failure("the two are not equal", code="DIFFERENT")

    def _query(self, statement: str) -> None:
        """A query prints its rows as they come. Ctrl-C ends it, and not the session."""
        lines = self.client.query(f"{statement};", self.properties, self.variables)
        with contextlib.closing(lines):
            try:
                self._print_query(lines, is_print=statement[:5].upper() == "PRINT")
            except KeyboardInterrupt:
                self._print_note("The query has been ended.")

    def _print_query(self, lines: Iterator[str], *, is_print: bool) -> None:
        if is_print:
            for line in lines:
                self._print_line(json.dumps({"line": line}) if self.as_json else line)
            return
        head = json.loads(next(lines))
        names: list[str] = head["columnNames"]
        table: GrowingTable | None = None
        if not self.as_json:
            width = next(self._consoles()).width
            table = GrowingTable(names, head["columnTypes"], width)
            for line in table.head():
                self._print_line(line)
        count = 0
        for line in lines:
            if line.startswith("{"):
                raise StatementFailed(json.loads(line), 500)
            row = row_values(line)
            count += 1
            if table is None:
                pairs = zip(names, row, strict=True)
                named = ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs)
                self._print_line(f"{{{named}}}")
            else:
                self._print_line(table.line(row))
        if not self.as_json:
            self._print_note(f"{count} row{'' if count == 1 else 's'}")

    # ---------------------------------------------------------------------------------- output

    def _print_note(self, text: str) -> None:
        if not self.as_json:
            from headrace.cli import output

            output.note(text)

    def _print_line(self, line: str) -> None:
        print(line, flush=True)
        if self._spool is not None:
            print(line, file=self._spool, flush=True)

    def _consoles(self) -> "Iterator[Console]":
        from rich.console import Console

        from headrace.cli import output

        yield output.console()
        if self._spool is not None:
            yield Console(file=self._spool, width=100, highlight=False)


def row_values(line: str) -> list[str]:
    """The JSON text of each value of a row. Numbers keep all their digits."""
    decoder = json.JSONDecoder()
    values, at = [], 1
    while line[at : at + 1] not in ("]", ""):
        _, end = decoder.raw_decode(line, at)
        values.append(line[at:end])
        at = end + 1 if line[end : end + 1] == "," else end
    return values
