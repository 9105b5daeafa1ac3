"""Lines of one kind are bounded; others are not affected."""

import logging

import pytest

from headrace.broker.setup.log_limit import LINES, PERIOD_S, LogLimit


def test_lines_of_one_kind_are_bounded_per_period(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    logger = logging.getLogger("test_log_limit")
    logger.addFilter(LogLimit(lambda: now[0]))
    for number in range(3 * LINES):
        logger.warning("closing %s: it is hostile", number)
    assert len(caplog.records) == LINES
    assert caplog.messages[0] == "closing 0: it is hostile"
    assert "further lines like this are left out" in caplog.messages[-1]
    logger.warning("another %s", "kind")
    assert caplog.messages[-1] == "another kind"
    now[0] += PERIOD_S
    logger.warning("closing %s: it is hostile", "later")
    assert caplog.messages[-1] == "closing later: it is hostile"
