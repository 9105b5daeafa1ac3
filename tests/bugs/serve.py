"""Start a broker with bugs: `python -m tests.bugs.serve BUGS COMMAND...`.

COMMAND is the usual one, `python -m headrace.cli serve ...`; its words after the module are kept.
"""

import sys

from headrace.cli.main import run
from tests.bugs.bugs import plant


def under(bugs: str) -> list[str]:
    """The command to put before the usual one."""
    return [sys.executable, "-m", "tests.bugs.serve", bugs]


if __name__ == "__main__":
    plant(sys.argv[1])
    sys.argv = ["headrace", *sys.argv[sys.argv.index("headrace.cli") + 1 :]]
    run()
