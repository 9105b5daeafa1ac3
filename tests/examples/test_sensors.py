"""The demo under `examples/sensors`: run for seconds, killed in the middle, and counted."""

import importlib
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "sensors"
# Readings a second, which is a simulated minute; and what production.py makes its day from.
RATE = 400
SEED = 7
SEVEN = datetime(2026, 1, 31, 7, tzinfo=UTC)


def module(name: str) -> ModuleType:
    """A module of the demo as its own program would import it."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def average(minute: int = 0, **other: Any) -> Any:
    fields = {"sensor": "rack-1", "place": "server room", "readings": 3, "temperature": 23.0}
    fields |= {"humidity": 45.0, "alert": None, **other}
    return module("picture").Average(minute=SEVEN.replace(minute=minute), **fields)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_reading_counts_once_in_topic_and_table_though_spark_is_killed(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, str(EXAMPLES / "demo.py"), "--seconds", "8", "--crash"),
            *("--rate", str(RATE), "--folder", str(tmp_path / "demo")),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    said = done.stdout + done.stderr
    log = tmp_path / "demo" / "pipeline.log"
    assert done.returncode == 0, said + (log.read_text()[-4000:] if log.exists() else "")
    assert "exactly once: every reading counted once" in said
    assert "Spark was killed" in said
    # Judged once more, by what is on disk alone.
    rows = module("findings").table_rows(tmp_path / "demo" / "averages")
    cells = Counter((row.minute, row.sensor) for row in rows)
    assert len(rows) >= 8 * 6, "a row for each sensor and simulated minute"
    assert set(cells.values()) == {1}
    # The day is the same whenever it is made: this is what the sensors sent.
    begin = rows[0].minute.replace(hour=6, minute=0)
    minutes = int((max(row.minute for row in rows) - begin).total_seconds() / 60) + 3
    day = islice(module("simulation").readings(begin, RATE, SEED), minutes * RATE)
    sent = Counter((each.time.replace(second=0, microsecond=0), each.sensor) for each in day)
    assert {cell: sent[cell] for cell in cells} == {
        (row.minute, row.sensor): row.readings for row in rows
    }
    assert drawn_colours(tmp_path / "demo" / "demo.png") > 50


def drawn_colours(path: Path) -> int:
    """How many different colours a picture has; a blank one has one."""
    from matplotlib import image

    pixels = image.imread(path)
    assert pixels.shape[0] > 500
    assert pixels.shape[1] > 800
    return len({tuple(pixel) for row in pixels[::4, ::4, :3] for pixel in row.round(2)})


def test_without_java_the_demo_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--folder", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""},
        check=False,
    )
    assert done.returncode == 1
    assert "No Java was found" in done.stdout
    assert "Java 17 or 21" in done.stdout
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("says", "goes_on"), [("Python worker failed to connect back.", True), ("no module x", False)]
)
def test_spark_is_started_again_only_where_the_machine_was_too_busy(
    tmp_path: Path, says: str, goes_on: bool
) -> None:
    demo = module("demo")
    pipeline = demo.Pipeline("nowhere:1", tmp_path)
    program = f"import os, time; print({says!r}); os.path.exists('again') and time.sleep(60)"
    pipeline._command = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {program}"]
    pipeline.start()
    pipeline._process.wait(60)
    (tmp_path / "again").touch()
    try:
        if goes_on:
            pipeline.check()
            assert pipeline._process.poll() is None
        else:
            with pytest.raises(demo.DemoFailed, match="no module x"):
                pipeline.check()
    finally:
        pipeline.stop()


def test_the_same_seed_gives_the_same_day_with_its_accidents() -> None:
    readings = module("simulation").readings
    hour = list(islice(readings(SEVEN, 80, 1), 80 * 60))
    assert hour == list(islice(readings(SEVEN, 80, 1), 80 * 60))
    assert hour != list(islice(readings(SEVEN, 80, 2), 80 * 60))
    warm = [r for r in hour if r.sensor == "rack-1" and r.temperature > 30]
    assert {r.time.minute for r in warm} >= {19, 20, 21, 22}
    assert all(12 <= r.time.minute < 30 for r in warm)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"averages": [average(), average()]}, "rack-1 at 07:00 is 2 times in the topic"),
        ({"averages": [average(readings=2)]}, "averages 2 readings, not 3"),
        ({"table": []}, "average rack-1 at 07:00 is 0 times in the table, not 1"),
        ({"table": [average(), average()]}, "is 2 times in the table, not 1"),
        ({"table": [average(temperature=24.0)]}, "is 1 times in the table, not 0"),
        ({"alerts": [average(alert="too warm")]}, "is 1 times in the topic of alerts, not 0"),
    ],
)
def test_the_count_finds_what_is_missing_doubled_or_different(
    change: dict[str, Any], problem: str | None
) -> None:
    row = average()
    given = {"averages": [row], "alerts": [], "table": [row], **change}
    found = module("findings").compare({(row.minute, row.sensor): 3}, **given)
    if problem is None:
        assert found.problems == ()
    else:
        assert any(problem in each for each in found.problems), found.problems


def test_an_average_that_alerts_is_missed_where_it_should_be() -> None:
    row = average(alert="too warm")
    found = module("findings").compare({(row.minute, row.sensor): 3}, [row], [], [row])
    assert found.problems == ("alert rack-1 at 07:00 is 0 times in the topic of alerts, not 1",)
