"""Which quota counts for a client, and how rates and throttles are computed."""

import pytest

from headrace.security.quotas import (
    PRODUCER_BYTE_RATE,
    QuotaWindows,
    Rate,
    TokenBucket,
    client_quota,
    ip_quota,
)
from headrace.security.state import QuotaEntity

USER_CLIENT: QuotaEntity = (("client-id", "c"), ("user", "u"))
USER_ANY_CLIENT: QuotaEntity = (("client-id", None), ("user", "u"))
USER: QuotaEntity = (("user", "u"),)
ANY_USER_CLIENT: QuotaEntity = (("client-id", "c"), ("user", None))
ANY_USER_ANY_CLIENT: QuotaEntity = (("client-id", None), ("user", None))
ANY_USER: QuotaEntity = (("user", None),)
CLIENT: QuotaEntity = (("client-id", "c"),)
ANY_CLIENT: QuotaEntity = (("client-id", None),)

IN_ORDER = [
    (USER_CLIENT, ("u", "c")),
    (USER_ANY_CLIENT, ("u", "c")),
    (USER, ("u", None)),
    (ANY_USER_CLIENT, ("u", "c")),
    (ANY_USER_ANY_CLIENT, ("u", "c")),
    (ANY_USER, ("u", None)),
    (CLIENT, (None, "c")),
    (ANY_CLIENT, (None, "c")),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_most_specific_quota_counts(first: int) -> None:
    quotas = {
        entity: {PRODUCER_BYTE_RATE: float(place)}
        for place, (entity, _) in enumerate(IN_ORDER)
        if place >= first
    }
    found = client_quota(quotas, PRODUCER_BYTE_RATE, "u", "c")
    assert found == (float(first), IN_ORDER[first][1])


def test_a_quota_of_another_key_or_client_does_not_count() -> None:
    quotas = {
        USER_CLIENT: {"consumer_byte_rate": 1.0},
        (("user", "v"),): {PRODUCER_BYTE_RATE: 2.0},
    }
    assert client_quota(quotas, PRODUCER_BYTE_RATE, "u", "c") is None


def test_an_address_has_its_own_limit_or_the_default() -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("ip", "10.0.0.7"),): {"connection_creation_rate": 5.0},
        (("ip", None),): {"connection_creation_rate": 1.0},
    }
    assert ip_quota(quotas, "10.0.0.7") == 5.0
    assert ip_quota(quotas, "10.0.0.8") == 1.0
    assert ip_quota({}, "10.0.0.8") is None


def test_a_rate_counts_at_least_ten_windows() -> None:
    rate = Rate(QuotaWindows())
    rate.record(1000, 0.0)
    assert rate.value(0.0) == 100
    rate.record(1000, 5.0)
    assert rate.value(5.0) == 200
    assert rate.value(10.5) == 2000 / 10.5
    assert rate.value(11.0) == 1000 / 10, "the first window is over"


def test_the_throttle_brings_the_rate_down_to_the_limit() -> None:
    rate = Rate(QuotaWindows())
    rate.record(3000, 0.0)
    throttle = rate.throttle_s(100, 0.0)
    assert throttle == pytest.approx(20.0)
    assert rate.throttle_s(300, 0.0) == 0


def test_what_is_unrecorded_does_not_count() -> None:
    rate = Rate(QuotaWindows())
    rate.record(1000, 0.0)
    rate.unrecord(1000)
    assert rate.value(1.0) == 0


def test_tokens_may_be_owed_and_come_back() -> None:
    bucket = TokenBucket(QuotaWindows())
    assert bucket.take(11, 1, 0.0) == 0
    assert bucket.take(1, 1, 0.0) > 0, "none is left"
    assert bucket.take(5, 1, 1.0) == pytest.approx(4.0), "a request that begins is done whole"
    assert bucket.take(1, 1, 2.0) == pytest.approx(3.0)
    assert bucket.take(1, 1, 100.0) == 0
