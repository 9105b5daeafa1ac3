"""The console script: decides what to load, runs it, and turns a Failure into an exit code.

Commands that start a process bypass Typer, whose import takes longer than their start
(`option_table.py`). All other commands go through `app.py`.
"""

import importlib
import os
import signal
import sys

from headrace.admin.errors import AdminError
from headrace.cli.failures import ExitCode, Failure, failure_of
from headrace.cli.option_table import ProcessCommand
from headrace.portable import PARENT, end_with

PROCESSES = {
    ("serve",): "headrace.cli.broker.serve",
    ("registry", "serve"): "headrace.cli.schemas.registry_serve",
    ("console",): "headrace.cli.console",
    ("connect", "serve"): "headrace.cli.connect.serve",
    ("sql", "serve"): "headrace.cli.sql.serve",
}
"""Modules of the commands that start a process."""


def run() -> None:
    """Entry point of the `headrace` command."""
    sys.exit(main(sys.argv[1:]))


def main(words: list[str]) -> int:
    """Run one command line and return its exit code."""
    if parent := os.environ.pop(PARENT, ""):
        end_with(int(parent), signal.SIGTERM)
    completing = "_HEADRACE_COMPLETE" in os.environ
    wants_help = "--help" in words or "-h" in words
    try:
        if not wants_help and not completing:
            for first, module in PROCESSES.items():
                if tuple(words[: len(first)]) == first:
                    command: ProcessCommand = importlib.import_module(module).COMMAND
                    return command.start(words[len(first) :])
        from headrace.cli import app

        return app.run(words, everything=completing)
    except (AdminError, Failure) as error:
        failure = error if isinstance(error, Failure) else failure_of(error)
        _report(failure, as_json="--json" in words)
        return int(failure.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


def _report(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        import json

        error = {"code": failure.code, "message": failure.message, "hint": failure.hint}
        print(json.dumps({"error": error}), file=sys.stderr)
        return
    color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    red, dim, plain = ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") if color else ("", "", "")
    print(f"{red}error:{plain} {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"{dim}       {failure.hint}{plain}", file=sys.stderr)
