"""The page of settings matches the tables."""

from pathlib import Path

from headrace.settings import TABLE, TOPIC_TABLE
from headrace.settings.document import settings_page
from headrace.settings.service_table import (
    CONNECT_TABLE,
    CONSOLE_TABLE,
    REGISTRY_TABLE,
    SQL_TABLE,
)

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), (
        "run: python -m headrace.settings > docs/settings.md"
    )


def test_the_page_has_every_setting_once_in_each_scope() -> None:
    topics, _, rest = settings_page().partition("## Broker settings")
    brokers, _, rest = rest.partition("## Registry settings")
    registry, _, rest = rest.partition("## Connect\n")
    connect, _, rest = rest.partition("## SQL server\n")
    sql, _, console = rest.partition("## Web console")
    for name in TOPIC_TABLE:
        assert topics.count(f"\n| `{name}` |") == 1, name
    for name in TABLE:
        assert brokers.count(f"\n| `{name}` |") == 1, name
    for name in REGISTRY_TABLE:
        assert registry.count(f"\n| `{name}` |") == 1, name
    for name in CONNECT_TABLE:
        assert connect.count(f"\n| `{name}` |") == 1, name
    for name in SQL_TABLE:
        assert sql.count(f"\n| `{name}` |") == 1, name
    for name in CONSOLE_TABLE:
        assert console.count(f"\n| `{name}` |") == 1, name


def test_the_page_marks_defaults_that_differ_from_kafka() -> None:
    for row in TABLE.values():
        if row.kafka_default is not None:
            assert f"Kafka's default is `{row.kafka_default}`" in settings_page()
