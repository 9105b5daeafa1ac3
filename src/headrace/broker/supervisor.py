"""Several brokers on one machine, started, watched and stopped together: `serve --brokers N`.

Each is a process of its own, so that every core has one. The first uses the data folder as a single
broker does, the others have folders in `brokers/` below it; all share the metadata store of the
first. A broker that dies is started again; meanwhile other replicas lead its partitions, if any.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import SettingError
from headrace.portable import PARENT
from headrace.settings import Settings
from headrace.settings.files import format_properties
from headrace.types import Address

if TYPE_CHECKING:
    from headrace.client.config import Security

logger = logging.getLogger(__name__)

FOLDER = "brokers"
_FOLDER_BEFORE_0_2 = "lanes"
_READY = "Headrace is ready on "
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_STOP_WITHIN_S = 60.0
_MEET_WITHIN_S = 60.0
_ASK_AGAIN_S = 0.02
_ANSWER_WITHIN_S = 5.0
_ELSEWHERE = ("HEADRACE_LISTEN", "HEADRACE_ADVERTISE", "HEADRACE_BROKERS")
"""Environment variables that are not for a single broker of several."""


@dataclass(frozen=True, slots=True)
class SupervisorPlan:
    """The number of brokers, their addresses, and their other arguments."""

    count: int
    data_dir: str
    settings: Settings
    """The addresses of the first broker."""
    texts: Mapping[str, str]
    """The settings of all brokers, as they were given."""
    words: tuple[str, ...]


def command(plan: SupervisorPlan, number: int) -> list[str]:
    """The command that starts one of the brokers, numbered from 1."""
    # The settings follow on standard input: arguments can be read by all users of the machine.
    words = [sys.executable, "-m", "headrace.cli", "serve", "--config", "/dev/stdin", *plan.words]
    folder = plan.data_dir
    if number > 1:
        folder = os.path.join(plan.data_dir, FOLDER, str(number))
    words += ["--data-dir", folder, "--node-id", str(number)]
    listeners = plan.settings.listeners.all
    bound = {one.name: _nth(one.bind, number) for one in listeners}
    words += ["--set", f"listeners={_listed(bound)}"]
    advertised = {one.name: _nth(one.advertised, number) for one in listeners if one.advertised}
    if all(address.port for address in advertised.values()):
        words += ["--set", f"advertised.listeners={_listed(advertised)}"]
    return [*words, "--set", f"headrace.metadata=sqlite:{plan.data_dir}"]


def shared_port(plan: SupervisorPlan) -> str:
    """The error if two listeners would have the same port, else empty."""
    owners: dict[tuple[bool, int], str] = {}
    for number in range(1, plan.count + 1):
        for listener in plan.settings.listeners.all:
            host, port = _nth(listener.bind, number)
            this = f"{listener.name} of broker {number}"
            other = owners.setdefault((":" in host, port), this)
            if port and other != this:
                return (
                    f"listeners: {other} and {this} would both have port {port}; "
                    f"leave at least {plan.count} ports between two listeners"
                )
    return ""


def _nth(address: Address, number: int) -> Address:
    """The address of one of the brokers: consecutive ports, or 0 for any port."""
    return address._replace(port=address.port + number - 1 if address.port else 0)


def _listed(addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def main(plan: SupervisorPlan) -> int:
    """Run all brokers until SIGTERM or SIGINT, or until one cannot start; the exit code."""
    os.makedirs(plan.data_dir, exist_ok=True)
    _rename_old_folder(plan.data_dir)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        security = _security(plan.settings)
    except SettingError as error:
        print(f"headrace: cannot start: {error}", file=sys.stderr)
        return 1
    children = [_Child(plan, number, security) for number in range(1, plan.count + 1)]
    if any(listener.tls for listener in plan.settings.listeners.all):
        signal.signal(signal.SIGHUP, lambda *_: _renew_certificates(children))
    for child in children:
        if not child.start():
            _stop(children)
            return 1
    if not _all_know_each_other(children, stopping):
        _stop(children)
        return 0 if stopping.is_set() else 1
    addresses = [child.address for child in children]
    print(
        f"{_READY}{addresses[0]}, {plan.count} brokers at {', '.join(addresses)}, "
        f"data in {plan.data_dir}",
        flush=True,
    )
    while not stopping.wait(0.1):
        for child in children:
            child.look()
    _stop(children)
    return 0


def _rename_old_folder(data_dir: str) -> None:
    """Give the folder of the other brokers its name, if an earlier version has made it."""
    old, new = (os.path.join(data_dir, name) for name in (_FOLDER_BEFORE_0_2, FOLDER))
    if os.path.isdir(old) and not os.path.exists(new):
        os.rename(old, new)
        logger.info("renamed %s to %s", old, new)


def _security(settings: Settings) -> "Security":
    """The credentials for connections to the brokers: those of the brokers themselves."""
    from headrace.broker.inter_broker import login_security

    listener = settings.listeners.inter_broker
    security = login_security(listener, settings)
    if not listener.tls:
        return security
    from headrace.security.tls import ListenerTls

    return replace(security, context=ListenerTls(listener, settings).client)


def _renew_certificates(children: Sequence["_Child"]) -> None:
    """Let each broker read its certificates again."""
    for child in children:
        child.signal(signal.SIGHUP)


def _all_know_each_other(children: Sequence["_Child"], stopping: threading.Event) -> bool:
    """Wait until each broker knows all others; before that, a new topic gets too few replicas."""
    deadline = time.monotonic() + _MEET_WITHIN_S
    numbers = {child.number for child in children}
    for child in children:
        while missing := numbers - child.known():
            if time.monotonic() > deadline:
                trouble = "does not respond"
                if child.number not in missing:
                    trouble = f"does not see broker {', '.join(map(str, sorted(missing)))}"
                print(
                    f"headrace: broker {child.number} at {child.address} {trouble}, "
                    f"{_MEET_WITHIN_S:g} s after the start; stopping all brokers. "
                    "See the log lines above for the cause",
                    file=sys.stderr,
                )
                return False
            if stopping.wait(_ASK_AGAIN_S):
                return False
            for each in children:
                each.look()
    return True


def _stop(children: Sequence["_Child"]) -> None:
    """Stop one after the other, so that each can hand over its leadership."""
    for child in children:
        child.stop()


class _Child:
    """One broker's process."""

    def __init__(self, plan: SupervisorPlan, number: int, security: "Security") -> None:
        self._command = command(plan, number)
        self._settings = format_properties(plan.texts)
        self._security = security
        self._inter_broker = plan.settings.listeners.inter_broker_name
        self.number = number
        self.address = ""
        self._process: subprocess.Popen[str] | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._again_at = 0.0
        self._started_at = 0.0

    def start(self) -> bool:
        """Start the process; True when it is ready, False if it ended. It prints the reason."""
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            encoding="utf-8", process_group=0,  # so that it gets no Ctrl-C of the terminal
            env=_environment(),
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:  # if it has ended already
            stdin.write(self._settings)
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            self._process.wait()
            return False
        self.address = self._asked_at(line.removeprefix(_READY))
        return True

    def _asked_at(self, ready: str) -> str:
        """The address of the inter-broker listener, from a broker's ready line."""
        first, *others = ready.split(", ")
        prefix = f"{self._inter_broker}://"
        return next((one.removeprefix(prefix) for one in others if one.startswith(prefix)), first)

    def known(self) -> set[int]:
        """The brokers in its metadata; empty if it does not respond."""
        # Imported here, because only several brokers need it.
        from headrace.client.cluster import Cluster
        from headrace.client.config import ClientConfig
        from headrace.client.errors import ClientError

        host, _, port = self.address.rpartition(":")
        config = ClientConfig(
            (Address(host.strip("[]"), int(port)),),
            request_timeout_s=_ANSWER_WITHIN_S,
            security=self._security,
        )
        try:
            with Cluster(config) as cluster:
                return set(cluster.brokers())
        except ClientError:
            return set()

    def look(self) -> None:
        """Restart the process if it has died, with a growing delay."""
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
                self.number, _ending(code), self._pause_s,
            )  # fmt: skip
            self._again_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        elif now >= self._again_at:
            self._again_at = 0.0
            self.start()

    def signal(self, number: int) -> None:
        """Send a signal to its process, if there is one."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Stop it cleanly; by force if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            logger.error("broker %d does not stop; killing it", self.number)
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """The variables of a broker, which ends with this process."""
    own = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    return {**own, PARENT: str(os.getpid())}


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
