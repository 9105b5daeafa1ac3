"""The console script: decides what to load, runs it, and turns a Failure into an exit code.

`headrace serve` bypasses Typer, whose import takes longer than starting a broker. All other
commands go through `app.py`.
"""

import os
import sys

from headrace.admin.errors import AdminError
from headrace.cli.failures import ExitCode, Failure, failure_of


def run() -> None:
    """Entry point of the `headrace` command."""
    sys.exit(main(sys.argv[1:]))


def main(words: list[str]) -> int:
    """Run one command line and return its exit code."""
    completing = "_HEADRACE_COMPLETE" in os.environ
    wants_help = "--help" in words or "-h" in words
    try:
        if words[:1] == ["serve"] and not wants_help and not completing:
            from headrace.cli.broker import serve

            return serve.start(words[1:])
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
