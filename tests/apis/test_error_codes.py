"""Error codes are found wherever they stand in a response."""

from types import SimpleNamespace

from headrace.apis.error_codes import count_error_codes
from headrace.apis.request_errors import RequestErrors
from headrace.errors import ErrorCode
from headrace.wire.steps import finish

OFFSET_COMMIT, HEARTBEAT = 8, 12
GROUP_ERROR, TOPIC_ERROR = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def counted(key: int, response: object) -> dict[tuple[int, int], int]:
    errors = RequestErrors()
    finish(count_error_codes(key, response, errors))
    return errors.counts


def committed(*codes: int) -> SimpleNamespace:
    partitions = [SimpleNamespace(error_code=code) for code in codes]
    return SimpleNamespace(partitions=partitions)


def test_an_error_of_the_whole_response_is_counted() -> None:
    response = SimpleNamespace(error_code=GROUP_ERROR)
    assert counted(HEARTBEAT, response) == {(HEARTBEAT, GROUP_ERROR): 1}
    assert counted(HEARTBEAT, SimpleNamespace(error_code=0)) == {}


def test_errors_of_partitions_are_counted_one_by_one() -> None:
    response = SimpleNamespace(
        topics=[committed(0, TOPIC_ERROR, TOPIC_ERROR), committed(GROUP_ERROR), committed()]
    )
    assert counted(OFFSET_COMMIT, response) == {
        (OFFSET_COMMIT, TOPIC_ERROR): 2,
        (OFFSET_COMMIT, GROUP_ERROR): 1,
    }


def test_a_large_response_is_counted_in_steps() -> None:
    response = SimpleNamespace(topics=[committed(*[TOPIC_ERROR] * 10_000)])
    errors = RequestErrors()
    steps = sum(1 for _ in count_error_codes(OFFSET_COMMIT, response, errors))
    assert steps > 30
    assert errors.of(OFFSET_COMMIT) == 10_000
    assert errors.of(HEARTBEAT) == 0
