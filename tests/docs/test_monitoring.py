"""The alert rules and the dashboard in docs/monitoring are valid and ask for metrics that exist."""

import json
import re
from pathlib import Path
from typing import Any

from headrace.admin import exporter
from headrace.broker.metrics.table import METRICS
from headrace.pipelines.running.gauges import values
from headrace.pipelines.running.progress import Query, ended
from tests.support.prometheus import needs_prometheus, promtool

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
NAME = re.compile(r"\b(?:headrace|kafka|process|metrics)_[a-z0-9_]+\b")
QUERY = Query("id", "run", "orders", "shop", "local-1", 1000, 1000)
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")

pytestmark = needs_prometheus


def of_brokers() -> set[str]:
    names = set()
    for row in METRICS:
        if row.kind == "histogram":
            names |= {f"{row.name}{suffix}" for suffix in OF_HISTOGRAMS}
        else:
            names.add(row.name)
    return names


def of_console() -> set[str]:
    """The names that `admin/exporter.py` defines."""
    found = NAME.findall(Path(exporter.__file__).read_text())
    return {name for name in found if name.startswith("kafka_")}


def asked_for(text: str) -> set[str]:
    """The metrics in expressions, without those that Spark has: their names are patterns."""
    return set(NAME.findall(text)) - {name for name in NAME.findall(text) if name[:8] == "metrics_"}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def test_the_alert_rules_are_valid() -> None:
    promtool(MONITORING, "check", "rules", "alerts.yml")


def test_the_alert_rules_fire_when_they_should_and_not_otherwise() -> None:
    promtool(MONITORING, "test", "rules", "alerts-test.yml")


def test_the_alert_rules_ask_for_metrics_that_exist() -> None:
    lines = (MONITORING / "alerts.yml").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    asked = asked_for(text)
    assert len(asked) > 20
    assert asked <= of_brokers() | of_console()


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    asked = asked_for("\n".join(expressions()))
    assert len(asked) > 30
    assert asked <= of_brokers() | of_console()


def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool(tmp_path, "check", "rules", str(file))


def test_every_panel_of_the_dashboard_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    places = set()
    for panel in panels():
        place = panel["gridPos"]
        assert panel["type"] == "row" or panel["description"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in places, panel["title"]
                places.add((x, y))
        assert place["x"] + place["w"] <= 24
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_the_rules_about_queries_match_the_names_that_spark_shows() -> None:
    # Spark puts its own words before a name and behind it, and replaces dots.
    shown = [
        "metrics_shop_driver_DoubleAccumulatorSource_" + name.replace(".", "_") + "_Value"
        for name in values(ended(QUERY, 1, None))
    ]
    patterns = re.findall(r'__name__=~"(metrics_[^"]+)"', (MONITORING / "alerts.yml").read_text())
    assert len(patterns) == 3
    assert any(re.fullmatch(patterns[0], name) for name in shown)
