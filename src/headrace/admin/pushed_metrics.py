"""Metrics that clients have pushed to brokers (KIP-714), from the brokers' Prometheus pages.

No Kafka API returns them. Each broker has those of the clients that pushed to it.
"""

import base64
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

TIMEOUT_S = 10.0
MOST_PAGE_BYTES = 64_000_000
MOST_SERIES = 20_000
_SERIES = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_MARK = 'client_instance_id="'


@dataclass(frozen=True, slots=True)
class PushedMetric:
    """One value that a client has pushed."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: str
    """As the broker wrote it, so that no digit is lost."""


@dataclass(frozen=True, slots=True)
class PushedPage:
    """What one broker has, by client, or why it cannot be read."""

    source: str
    """The address of the page, without credentials."""
    problem: str
    clients: dict[tuple[str, str], list[PushedMetric]]
    """By client id and client instance id."""
    left_out: int = 0
    """Values beyond the limit."""


def read_pushed_metrics(url: str) -> PushedPage:
    """The pushed metrics of a broker's page; a page that cannot be read has a `problem`."""
    shown = without_login(url)
    try:
        request = urllib.request.Request(shown, headers=_login(url))
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            text = answer.read(MOST_PAGE_BYTES + 1)
    except urllib.error.HTTPError as error:
        return PushedPage(shown, f"{shown} answered with status {error.code}", {})
    except OSError as error:
        reason = getattr(error, "reason", error)
        return PushedPage(shown, f"{shown} does not answer: {reason}", {})
    if len(text) > MOST_PAGE_BYTES:
        return PushedPage(shown, f"{shown} has more than {MOST_PAGE_BYTES} bytes", {})
    return parse_pushed_metrics(shown, text.decode(errors="replace").splitlines())


def parse_pushed_metrics(source: str, lines: Iterable[str]) -> PushedPage:
    """The pushed metrics among the lines of a page."""
    clients: dict[tuple[str, str], list[PushedMetric]] = {}
    count = 0
    for client, metric in _series(lines):
        count += 1
        if count <= MOST_SERIES:
            clients.setdefault(client, []).append(metric)
    return PushedPage(source, "", clients, max(0, count - MOST_SERIES))


def _series(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], PushedMetric]]:
    for line in lines:
        if _MARK not in line or (found := _SERIES.fullmatch(line)) is None:
            continue
        labels = {name: _unescaped(value) for name, value in _LABEL.findall(found[2])}
        client = (labels.pop("client_id", ""), labels.pop("client_instance_id", ""))
        yield client, PushedMetric(found[1], tuple(labels.items()), found[3])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _login(url: str) -> dict[str, str]:
    given, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(unquote(given).encode()).decode()}"}


def without_login(url: str) -> str:
    """A URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
