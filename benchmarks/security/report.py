"""results.json of this benchmark, and its section of RESULTS.md."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.rows import Row

JSON = Path(__file__).with_name("results.json")
QUOTAS = Path(__file__).with_name("quotas.json")


@dataclass
class SecurityResults:
    """All rounds of all rows; rows of Headrace alone have the same values for both."""

    about: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    rows: dict[str, report.Measured] = field(default_factory=dict)

    @classmethod
    def load(cls) -> "SecurityResults":
        if not JSON.exists():
            return cls()
        stored = json.loads(JSON.read_text())
        rows = {name: report.Measured(**row) for name, row in stored.pop("rows").items()}
        return cls(**stored, rows=rows)

    def write(self) -> None:
        self.about = report.about()
        JSON.write_text(json.dumps(asdict(self), indent=1) + "\n")


def cells(row: Row, measured: report.Measured, alone: bool) -> list[str]:
    """The row as text, in the order of TITLES."""
    verdict = {True: "holds", False: "**missed**", None: measured.doubt or ""}
    return [
        row.title,
        row.unit,
        "-" if alone else report.spread(measured.kafka),
        report.spread(measured.headrace),
        "-" if row.absolute else f"**{measured.ratio:.2f}**",
        report.bar_text(row),
        verdict[report.holds(row, measured)],
        _cpu(measured),
    ]


TITLES = (
    "work",
    "unit",
    "Apache Kafka",
    "Headrace",
    "ratio",
    "bar",
    "",
    "broker CPU, µs a request",
)


def _cpu(measured: report.Measured) -> str:
    """The medians of both brokers, and how much less Headrace's is."""
    if not measured.headrace_cpu_us:
        return ""
    own = statistics.median(measured.headrace_cpu_us)
    if not measured.kafka_cpu_us:
        return report.number(own)
    kafka = statistics.median(measured.kafka_cpu_us)
    return f"{report.number(kafka)} / {report.number(own)} = {kafka / own:.2f}"


def markdown() -> list[str]:
    """The section of RESULTS.md; without figures while nothing was measured."""
    from benchmarks.security.rows import OWN_ROWS, all_rows

    results = SecurityResults.load()
    effort = " with --quick" if results.quick else ""
    when = "Not measured on a quiet machine yet."
    if results.rows:
        when = f"Measured on {results.about['date']}{effort}."
    return [
        "",
        "## Security",
        "",
        when,
        "Both brokers have the listeners PLAINTEXT, SSL and SASL_SSL, TLS 1.3 and a P-256",
        "certificate, and are measured in turns with the same client as above, over OpenSSL. A new",
        "connection is a full handshake and one request; a login is a new connection and the",
        "messages of its mechanism. The costs of quotas and ACLs are the CPU of a small",
        "Produce with them over that without, in neighbouring runs; 1.05 is 5 % more. The consumer",
        "at its quota fetches without a pause; both brokers empty answers that are too much, so it",
        "gets less than its quota in answers that are large beside it. The bystander sends a small",
        "Produce every 2 ms without TLS, while hostile clients open 300 connections per second to",
        "the TLS listener. The last column is the CPU of the broker's process for one request or",
        "login, of Kafka / of Headrace. Rates also depend on the client, which needs about as much",
        "CPU as Headrace for handshakes and logins, and on how many threads share the cores.",
        "Repeat with `python -m benchmarks.security --write`, or add `--quick` (eight minutes).",
        "",
        f"| {' | '.join(TITLES)} |",
        "|" + "---|" * len(TITLES),
        *(
            f"| {' | '.join(_cells(row, results.rows.get(row.name), row in OWN_ROWS))} |"
            for row in all_rows()
        ),
        *_quotas(),
    ]


def _quotas() -> list[str]:
    """What greedy clients get at a quota; nothing while it was not measured."""
    if not QUOTAS.exists():
        return []
    return [
        "",
        "Greedy clients at their quota, over twice the default windows of eleven seconds; topics",
        "are created one by one, again after the throttle time of a refusal. Repeat with",
        "`python -m benchmarks.security.quotas --write`.",
        "",
        "| at a quota | unit | Apache Kafka | Headrace |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in json.loads(QUOTAS.read_text())),
    ]


def _cells(row: Row, measured: report.Measured | None, alone: bool) -> list[str]:
    if measured is None:
        return [row.title, row.unit, "", "", "", report.bar_text(row), "", ""]
    return cells(row, measured, alone)
