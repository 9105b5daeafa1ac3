"""results.json of this benchmark, and its section of RESULTS.md."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.rows import Row

JSON = Path(__file__).with_name("results.json")


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
    """The row as text: title, unit, Kafka, Headrace, ratio, bar, verdict."""
    verdict = {True: "holds", False: "**missed**", None: measured.doubt or ""}
    return [
        row.title,
        row.unit,
        "-" if alone else report.spread(measured.kafka),
        report.spread(measured.headrace),
        "-" if row.absolute else f"**{measured.ratio:.2f}**",
        report.bar_text(row),
        verdict[report.holds(row, measured)],
    ]


TITLES = ("work", "unit", "Apache Kafka", "Headrace", "ratio", "bar", "")


def markdown() -> list[str]:
    """The section of RESULTS.md; nothing while nothing was measured."""
    from benchmarks.security.rows import OWN_ROWS, all_rows

    results = SecurityResults.load()
    if not results.rows:
        return []
    own = {row.name for row in OWN_ROWS}
    effort = " with --quick" if results.quick else ""
    return [
        "",
        "## Security",
        "",
        f"Measured on {results.about['date']}{effort}: both brokers with the listeners",
        "PLAINTEXT, SSL and SASL_SSL, TLS 1.3 and a P-256 certificate, in turns, with the same",
        "client as above over OpenSSL. A new connection is a full handshake and one request.",
        "Costs are the CPU of a small Produce with the feature over that without, in neighbouring",
        "runs. The bystander sends a small Produce every 2 ms without TLS, while hostile clients",
        "open 300 connections a second to the TLS listener. Repeat with",
        "`python -m benchmarks.security --write`.",
        "",
        f"| {' | '.join(TITLES)} |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {' | '.join(cells(row, results.rows[row.name], row.name in own))} |"
            for row in all_rows()
            if row.name in results.rows
        ),
    ]
