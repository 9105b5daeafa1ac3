"""`headrace bench`."""

from tests.cli.conftest import Run


def test_the_numbers_add_up_and_the_trial_topic_is_gone(run: Run) -> None:
    result = run("bench", "--records", "3000", "--size", "50", "--partitions", "2", "--json")
    assert result.code == 0, result.err
    found = result.document()
    produce, consume, latency = (
        found["produce"],
        found["consume"],
        found["produce_latency_ms"],
    )
    assert isinstance(produce, dict)
    assert isinstance(consume, dict)
    assert isinstance(latency, dict)
    assert produce["records"] == consume["records"] == 3000
    assert produce["records_per_second"] > 0
    assert latency["p50"] <= latency["p99"] <= latency["max"]
    names = [row["name"] for row in run("topics", "list", "--json").rows()]
    assert found["topic"] not in names


def test_people_see_a_table_with_percentiles(run: Run) -> None:
    shown = run("bench", "--records", "200").text
    assert "MB/s" in shown
    assert "p99.9" in shown
