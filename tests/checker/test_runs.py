"""Real clients on a real broker, judged by the checker: once as it is, and with bugs planted."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.bugs.serve import under
from tests.checker.verdict import Verdict, judge
from tests.checker.workload import Workload

SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "1"}

Faults = Callable[[Workload, RunningBroker], None]


def kills(workload: Workload, broker: RunningBroker) -> None:
    """The broker dies three times, and a client after each."""
    for number in range(3):
        workload.go_on()
        workload.kill_broker(broker)
        workload.go_on(3)
        workload.kill_client(number)
    workload.go_on()


def lost_answers(workload: Workload, broker: RunningBroker) -> None:
    for _ in range(3):
        workload.go_on(3)
        workload.lose_answers(broker, 5)
    workload.go_on(3)


def zombies(workload: Workload, _broker: RunningBroker) -> None:
    for number in range(3):
        workload.go_on(3)
        workload.make_zombie(number)
    workload.go_on(3)


def open_transactions(workload: Workload, _broker: RunningBroker) -> None:
    """Transactions that are open for a while, beside others who read."""
    workload.go_on(10)
    workload.kill_client()
    workload.go_on(10)


def run(start: BrokerFactory, folder: Path, faults: Faults, *struck: str) -> Verdict:
    pause_s = 0.1 if faults in (zombies, open_transactions) else 0.0
    broker = start(SETTINGS)
    with Workload(broker.bootstrap_servers, folder, pause_in_transaction_s=pause_s) as workload:
        faults(workload, broker)
        return judge(workload.finish(), struck)


def test_exactly_once_holds_while_the_broker_and_clients_are_killed(
    headrace_factory: BrokerFactory, tmp_path: Path
) -> None:
    verdict = run(headrace_factory, tmp_path, kills, "broker", "client")
    assert verdict.clean, verdict


ATTEMPTS = 5
CASES = [
    ("sequence", lost_answers, "answers", {2}),
    ("epoch", zombies, "client", {4, 5, 6, 12}),
    ("stable", open_transactions, "client", {4}),
]


@pytest.mark.parametrize(("bug", "faults", "struck", "rules"), CASES, ids=[c[0] for c in CASES])
def test_a_bug_is_found_and_the_same_run_without_it_is_clean(
    headrace_factory: BrokerFactory,
    tmp_path: Path,
    bug: str,
    faults: Faults,
    struck: str,
    rules: set[int],
) -> None:
    (tmp_path / "right").mkdir()
    right = run(headrace_factory, tmp_path / "right", faults, struck)
    assert right.clean, right
    verdicts = []
    # On a busy machine the faults may all strike where the bug does no harm.
    for attempt in range(ATTEMPTS):
        folder = tmp_path / f"wrong-{attempt}"
        folder.mkdir()
        with closing(RunningBroker(SETTINGS, under=under(bug))) as broken:
            verdicts.append(run(lambda _, broker=broken: broker, folder, faults, struck))
        if verdicts[-1].rules & rules:
            break
    else:
        pytest.fail(f"not found in {ATTEMPTS} runs: {verdicts}")
