"""What other systems than Linux lack, and what is used there instead.

`LINUX` is False on macOS, and on Linux if the environment variable HEADRACE_PORTABLE is 1, so that
tests can run what macOS would run.
"""

import os
import signal
import sys
import threading
import time

PORTABLE = "HEADRACE_PORTABLE"
LINUX = sys.platform == "linux" and os.environ.get(PORTABLE) != "1"

PARENT = "HEADRACE_PARENT"
"""The environment variable with the process with which a command ends."""
_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.5


def end_with(parent: int, number: signal.Signals) -> None:
    """Have this process get a signal when its parent ends; at once if it has ended already."""
    if LINUX:
        # Imported here, because only child processes need it.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    else:
        threading.Thread(target=_watch, args=(parent, number), daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _watch(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), number)
