"""python -m tests.compat [NAME...]: run entries of `compat/`, all if none is named.

The exit code is 1 if the results of an entry differ from its list, and 2 for an unknown name.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.compat.entries import COMPAT, NotAvailable, names, run

TIMEOUT_S = 3600
SHOWN = 20_000


def main(arguments: list[str], folder: Path = COMPAT) -> int:
    parser = argparse.ArgumentParser(prog="make compat")
    parser.add_argument("names", nargs="*", metavar="NAME", help="an entry of compat/")
    wanted = parser.parse_args(arguments).names or names(folder)
    if unknown := sorted(set(wanted) - set(names(folder))):
        print(f"{', '.join(unknown)}: no such entry; there are {', '.join(names(folder))}")
        return 2
    failed = [name for name in wanted if not _passes(folder / name)]
    if failed:
        print(f"differences from the lists: {', '.join(failed)}")
    return 1 if failed else 0


def _passes(entry: Path) -> bool:
    print(f"{entry.name}: running", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"compat-{entry.name}-") as scratch:
        try:
            outcome = run(entry, Path(scratch), TIMEOUT_S)
        except NotAvailable as reason:
            print(f"{entry.name}: not run: {reason}", flush=True)
            return True
    if outcome.complaints:
        print(outcome.output[-SHOWN:])
        print("\n".join(f"{entry.name}: {line}" for line in outcome.complaints), flush=True)
        return False
    print(f"{entry.name}: {outcome.passed} passed, as listed in tests.allow", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
