"""A network of a test's own, which needs root: namespaces on a bridge, and cuts between them.

Every cut is silent, as a broken switch is: packets go nowhere, and TCP sends them again once it has
healed.
"""

import itertools
import os
import subprocess
from types import TracebackType
from typing import Self

import pytest

_NOWHERE = "02:00:00:00:00:fe"
"""No card has this address."""
_numbers = itertools.count()


class Place:
    """A namespace with one network card and one address."""

    def __init__(self, name: str, card: str, host: str) -> None:
        self.name = name
        self.card = card
        self.host = host

    @property
    def under(self) -> list[str]:
        """The command that runs others there; `ip netns exec` would hold on to mounted disks."""
        return ["nsenter", f"--net=/run/netns/{self.name}"] if self.name else []


HERE = Place("", "", "127.0.0.1")
"""Where the test is."""


class Network:
    """Named places that reach each other and this machine; a context manager that ends it."""

    def __init__(self, *names: str) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root may make network namespaces")
        # Several runs of the tests may be under way on one machine.
        hundreds, number = divmod(os.getpid(), 250)
        self._prefix = f"hr{os.getpid()}n{next(_numbers)}"[:11]
        self._net = f"10.{100 + (hundreds + next(_numbers)) % 100}.{number + 1}"
        self._bridge = f"{self._prefix}br"
        self._cuts: set[tuple[str, str]] = set()
        self._alone: set[str] = set()
        self.places = {
            name: Place(f"{self._prefix}{name}", f"{self._prefix}v{at}", f"{self._net}.{at}")
            for at, name in enumerate(names, 1)
        }

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._bridge, "type", "bridge", "mcast_snooping", "0")
            _ip("addr", "add", f"{self._net}.254/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for place in self.places.values():
                _ip("netns", "add", place.name)
                _ip("link", "add", place.card, "type", "veth",
                    "peer", "name", "eth0", "netns", place.name)  # fmt: skip
                _ip("link", "set", place.card, "master", self._bridge, "up")
                _ip("-n", place.name, "addr", "add", f"{place.host}/24", "dev", "eth0")
                _ip("-n", place.name, "link", "set", "lo", "up")
                _ip("-n", place.name, "link", "set", "eth0", "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for place in self.places.values():
            subprocess.run(["ip", "netns", "del", place.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Nothing gets from one place to another, and nothing back unless `one_way`."""
        self._cuts.add((source, target))
        _ip("-n", self.places[source].name, "neigh", "replace", self.places[target].host,
            "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")  # fmt: skip
        if not one_way:
            self.cut(target, source, one_way=True)

    def isolate(self, name: str) -> None:
        """Nothing gets to a place or away from it, neither clients nor anybody."""
        self._alone.add(name)
        _ip("link", "set", self.places[name].card, "nomaster")

    def heal(self) -> None:
        """Everything arrives again."""
        for name in self._alone:
            _ip("link", "set", self.places[name].card, "master", self._bridge)
        for source, target in self._cuts:
            _ip("-n", self.places[source].name, "neigh", "del", self.places[target].host,
                "dev", "eth0")  # fmt: skip
        self._alone.clear()
        self._cuts.clear()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"`ip {' '.join(arguments)}` is not possible here: {done.stderr.strip()}")
