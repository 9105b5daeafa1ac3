"""Which requests are timed."""

from headrace.broker.request_times import RequestTimes


def timed_of(requests: int, per_second: float) -> int:
    """How many of these requests are timed, at this rate."""
    times = RequestTimes()
    following = timed = 0
    for number in range(1, requests + 1):
        if number >= following:
            timed += 1
            following = number + times.pause(number, 100.0 + number / per_second)
    return timed


def test_all_requests_are_timed_while_they_are_few() -> None:
    assert timed_of(1000, per_second=1000) == 1000


def test_one_of_64_is_timed_while_they_are_many() -> None:
    assert 950 < timed_of(64_000, per_second=50_000) < 1050


def test_all_are_timed_again_when_they_are_few_again() -> None:
    times = RequestTimes()
    assert times.pause(1, 100.0) == 1
    assert times.pause(2, 100.0001) > 1
    assert times.pause(90, 101.0) == 1
