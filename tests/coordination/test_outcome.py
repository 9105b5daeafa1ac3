"""Replies reach the requests that wait for them, once."""

from headrace.coordination.outcome import Outcome, Reply, Token, answer
from headrace.errors import ErrorCode, KafkaError


def send(outcome: Outcome) -> None:
    for reply in outcome.replies:
        reply.send()


def test_only_the_first_response_to_a_request_counts() -> None:
    token: Token[int] = Token()
    received: list[int | KafkaError] = []
    token.when_answered(received.append)
    send(answer(token, 1).merge(answer(token, 2)))
    assert token.answered
    assert token.response == 1
    assert received == [1]


def test_a_response_of_none_is_an_answer() -> None:
    token: Token[None] = Token()
    send(answer(token, None))
    assert token.answered
    assert token.response is None


def test_a_reply_whose_records_are_lost_becomes_an_error() -> None:
    token: Token[int] = Token()
    Reply(token, 1).fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert isinstance(token.response, KafkaError)
    assert token.response.code is ErrorCode.NOT_COORDINATOR
