"""kafka-python's own integration tests against our broker: `compat/kafka-python`."""

from pathlib import Path

import pytest

from tests.compat.entries import COMPAT, NotAvailable, run


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kafka_pythons_own_tests_match_the_allow_list(tmp_path: Path) -> None:
    try:
        outcome = run(COMPAT / "kafka-python", tmp_path, 380, "--tb=short")
    except NotAvailable as reason:
        pytest.skip(str(reason))
    assert not outcome.complaints, "\n".join(outcome.complaints) + outcome.output[-20_000:]
