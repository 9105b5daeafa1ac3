"""Several brokers on one machine, started, watched and stopped together: `serve --brokers N`.

Each is a process of its own, so that every core has one. The first uses the data folder as a broker
on its own would, the others have folders in `lanes/` below it; all share the first one's metadata.
One that dies is started again; what it led moves to others meanwhile, where they have replicas.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

LANES = "lanes"
_PR_SET_PDEATHSIG = 1
_READY = "Headrace is ready on "
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_STOP_WITHIN_S = 60.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LanePlan:
    """How many brokers, where, and with which other words of the command line."""

    count: int
    data_dir: str
    listen: Address
    advertise: Address | None
    words: tuple[str, ...]


def command(plan: LanePlan, number: int) -> list[str]:
    """The command that starts one of the brokers, numbered from 1."""
    words = [sys.executable, "-m", "headrace.cli", "serve", *plan.words]
    folder = plan.data_dir
    if number > 1:
        folder = os.path.join(plan.data_dir, LANES, str(number))
    words += ["--data-dir", folder, "--node-id", str(number)]
    words += ["--listen", _nth(plan.listen, number)]
    if plan.advertise is not None:
        words += ["--advertise", _nth(plan.advertise, number)]
    return [*words, "--set", f"headrace.metadata=sqlite:{plan.data_dir}"]


def _nth(address: Address, number: int) -> str:
    """The address of one of the brokers: the ports follow each other, unless any will do."""
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port + number - 1 if port else 0}"


def main(plan: LanePlan) -> int:
    """Run all until SIGTERM or SIGINT, or until one cannot start at all; the exit code."""
    os.makedirs(plan.data_dir, exist_ok=True)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    lanes = [_Lane(plan, number) for number in range(1, plan.count + 1)]
    addresses = []
    for lane in lanes:
        address = lane.start()
        if address is None:
            _stop(lanes)
            return 1
        addresses.append(address)
    print(
        f"{_READY}{addresses[0]}, {plan.count} brokers at {', '.join(addresses)}, "
        f"data in {plan.data_dir}",
        flush=True,
    )
    while not stopping.wait(0.1):
        for lane in lanes:
            lane.look()
    _stop(lanes)
    return 0


def _stop(lanes: Sequence["_Lane"]) -> None:
    """Stop one after the other, so that each can hand over what it leads."""
    for lane in lanes:
        lane.stop()


class _Lane:
    """One broker's process."""

    def __init__(self, plan: LanePlan, number: int) -> None:
        self._command = command(plan, number)
        self._number = number
        self._process: subprocess.Popen[str] | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._again_at = 0.0
        self._started_at = 0.0

    def start(self) -> str | None:
        """Its address once it is ready, or None if it ended instead; it has said why."""
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, preexec_fn=_die_with_parent
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            self._process.wait()
            return None
        return line.removeprefix(_READY).split(",")[0]

    def look(self) -> None:
        """Start it again if it has died; not too often if it keeps dying."""
        assert self._process is not None
        code = self._process.poll()
        now = time.monotonic()
        if code is None:
            return
        if not self._again_at:
            if now - self._started_at > _LONGEST_PAUSE_S:
                self._pause_s = _FIRST_PAUSE_S
            logger.error(
                "broker %d ended (%s); starting it again in %.1f s",
                self._number, _ending(code), self._pause_s,
            )  # fmt: skip
            self._again_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        elif now >= self._again_at:
            self._again_at = 0.0
            self.start()

    def stop(self) -> None:
        """Stop it cleanly; by force if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            logger.error("broker %d does not stop; killing it", self._number)
            self._process.kill()
            self._process.wait()


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _die_with_parent() -> None:
    """In the child: end when the parent ends, however that happens; and not of its Ctrl-C."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.setpgrp()
