"""Replays with Spark: a planted error is found, switched away and back, under kills."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sql.replay_story import OrderProducer, ReplayStory
from tests.sql.sql_process import SqlProcess, wait

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def story(sql_bootstrap: str, tmp_path: Path) -> Iterator[ReplayStory]:
    service = f"replay-{uuid.uuid4().hex[:8]}"
    server = SqlProcess(sql_bootstrap, tmp_path, service)
    yield ReplayStory(server, sql_bootstrap, service, f"o{uuid.uuid4().hex[:8]}")
    server.stop()


def _tell(story: ReplayStory, kills: dict[str, str], a_second: int, first: int) -> None:
    """The whole story, with kills of `driver` or `server` in some phases."""
    totals, replay = story.totals, story.replay
    story.begin()
    orders = OrderProducer(story.bootstrap, story.orders, a_second)
    orders.produce(first)
    orders.start()
    try:
        story.create_replay()
        story.kill(kills.get("replay", ""))
        wait(lambda: story.rows(replay), lambda rows: len(rows) == 30)
        merge = f"SWITCH {totals} TO {replay} WITH (mode='merge');"
        compared = story.run(f"COMPARE {replay} WITH {totals};", kills.get("compare", ""))
        story.assert_planted(compared["comparison"])
        story.run(f"SWITCH {totals} TO {replay};", kills.get("alias", ""))
        assert story.phase() == "switched"
        story.run(f"ROLLBACK {totals};", kills.get("back", ""))
        assert story.phase() == "running"
        story.run(merge, kills.get("merge", ""), story.has_phase("merging", 1))
        assert story.phase() == "switched"
        assert _differs(story.rows(totals), orders), "the new version has the name"
        story.run(f"ROLLBACK {totals};", kills.get("return", ""), story.has_phase("returning", 2))
        assert story.phase() == "running"
        compared = story.run(f"COMPARE {replay} WITH {totals};")
        story.assert_planted(compared["comparison"])
        story.run(merge)
    finally:
        orders.stop()
    wait(lambda: story.rows(totals), lambda rows: rows == orders.expected(2))
    story.run(f"ROLLBACK {totals};")
    wait(lambda: story.rows(totals), lambda rows: rows == orders.expected(1))
    wait(lambda: story.rows(replay), lambda rows: rows == orders.expected(2))
    for topic in (totals, replay, f"{totals}.before_{replay}"):
        story.audit(topic)


def _differs(rows: list[list[object]], orders: OrderProducer) -> bool:
    """Whether rows are those of the version that knows refunds: it has less for some customers."""
    old = {str(row[0]): row[2] for row in orders.expected(1)}
    return any(float(str(row[2])) < 0.9 * float(str(old[str(row[0])])) for row in rows)


def test_a_planted_error_is_replaced_and_rolled_back_with_a_kill_of_driver_and_server(
    story: ReplayStory,
) -> None:
    _tell(story, {"compare": "driver", "merge": "server"}, a_second=200, first=2000)


@pytest.mark.endurance
@pytest.mark.parametrize("what", ["driver", "server"])
@pytest.mark.parametrize("phase", ["replay", "compare", "alias", "back", "merge", "return"])
def test_a_kill_in_any_phase_loses_and_repeats_nothing(
    story: ReplayStory, phase: str, what: str
) -> None:
    _tell(story, {phase: what}, a_second=1000, first=50_000)


@pytest.mark.endurance
@pytest.mark.parametrize("what", ["driver", "server"])
def test_kills_in_all_phases_lose_and_repeat_nothing(story: ReplayStory, what: str) -> None:
    phases = ("replay", "compare", "alias", "back", "merge", "return")
    _tell(story, dict.fromkeys(phases, what), a_second=500, first=200_000)
