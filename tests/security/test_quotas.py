"""The quota that applies to a client, and the computation of rates and throttle times."""

import pytest

from headrace.errors import KafkaError
from headrace.security.quotas import (
    PRODUCER_BYTE_RATE,
    QuotaWindows,
    Rate,
    TokenBucket,
    check_entity,
    check_value,
    client_quota,
    ip_quotas,
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


def test_addresses_have_their_own_limit_or_the_default() -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("ip", "10.0.0.7"),): {"connection_creation_rate": 5.0},
        (("ip", "::FFFF:10.0.0.9"),): {"connection_creation_rate": 6.0},
        (("ip", None),): {"connection_creation_rate": 1.0},
        ANY_USER: {PRODUCER_BYTE_RATE: 3.0},
    }
    assert ip_quotas(quotas) == {"10.0.0.7": 5.0, "10.0.0.9": 6.0, None: 1.0}
    assert ip_quotas({}) == {}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({}, "empty"),
        ({"user": ""}, "Empty user"),
        ({"group": "g"}, "type: group"),
        ({"ip": "10.0.0.7", "user": "u"}, "combined"),
        ({"ip": "10.0.0.256"}, "not a valid IP"),
    ],
)
def test_entities_that_quotas_cannot_have_are_refused(
    parts: dict[str, str | None], reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason):
        check_entity(parts)


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER, PRODUCER_BYTE_RATE, 0.0),
        (USER, PRODUCER_BYTE_RATE, -1.0),
        (USER, PRODUCER_BYTE_RATE, float("nan")),
        (USER, PRODUCER_BYTE_RATE, 1.5),
        (USER, PRODUCER_BYTE_RATE, 1e19),
        (USER, "connection_creation_rate", 1.0),
        ((("ip", None),), PRODUCER_BYTE_RATE, 1.0),
        ((("ip", None),), "connection_creation_rate", 2.0**31),
    ],
)
def test_values_that_a_quota_cannot_have_are_refused(
    entity: QuotaEntity, key: str, value: float
) -> None:
    with pytest.raises(KafkaError):
        check_value(entity, key, value)


def test_percentages_and_mutations_may_be_fractions() -> None:
    check_value(USER, "request_percentage", 0.5)
    check_value(CLIENT, "controller_mutation_rate", 1.5)
    check_value((("ip", None),), "connection_creation_rate", 2.0)


LIMIT = 100.0


def rate(total: float, throttle: float, limit: float = LIMIT) -> float:
    """The rate that a throttle was computed from: the sum over the time that counts."""
    return total / (total / limit - throttle)


def test_a_rate_counts_at_least_ten_windows() -> None:
    meter = Rate(QuotaWindows())
    meter.record(2000, 0.0)
    assert rate(2000, meter.throttle_s(LIMIT, 0.0)) == pytest.approx(2000 / 10)
    assert meter.throttle_s(200, 0.0) == 0, "at the limit"
    meter.record(1000, 5.0)
    assert rate(3000, meter.throttle_s(LIMIT, 5.0)) == pytest.approx(3000 / 10)
    assert rate(3000, meter.throttle_s(LIMIT, 5.5)) == pytest.approx(3000 / 10.5)
    assert rate(3000, meter.throttle_s(LIMIT, 10.5)) == pytest.approx(3000 / 10.5)
    assert meter.total(11.0) == 1000, "the first window is over"


def test_a_sample_counts_until_its_last_event_is_eleven_windows_old() -> None:
    meter = Rate(QuotaWindows())
    meter.record(600, 0.0)
    meter.record(600, 0.9)
    meter.record(100, 2.0)
    assert meter.total(11.5) == 1300, "the sample overlaps the time that counts"
    assert rate(1300, meter.throttle_s(LIMIT, 11.5)) == pytest.approx(1300 / 11.5)
    assert meter.total(11.9) == 100
    assert meter.total(13.0) == 0


def test_windows_can_be_of_another_number_and_size() -> None:
    meter = Rate(QuotaWindows(3, 5))
    meter.record(2000, 0.0)
    assert rate(2000, meter.throttle_s(LIMIT, 0.0)) == pytest.approx(2000 / 10)
    assert meter.total(14.9) == 2000
    assert meter.total(15.0) == 0


def test_the_throttle_brings_the_rate_down_to_the_limit() -> None:
    meter = Rate(QuotaWindows())
    meter.record(3000, 0.0)
    assert meter.throttle_s(LIMIT, 0.0) == pytest.approx(20.0)


def test_a_greedy_client_gets_the_limit_over_whole_windows() -> None:
    meter = Rate(QuotaWindows())
    now, taken = 0.0, 0
    at_start = 0
    while now < 110.0:
        if now < 55.0:
            at_start = taken
        meter.record(50, now)
        taken += 50
        now += 0.001 + meter.throttle_s(LIMIT, now)
    assert taken - at_start == pytest.approx(55 * LIMIT, rel=0.2)


def test_what_is_unrecorded_does_not_count() -> None:
    meter = Rate(QuotaWindows())
    meter.record(1000, 0.0)
    meter.unrecord(1000)
    assert meter.total(1.0) == 0


def test_tokens_may_be_owed_and_come_back() -> None:
    bucket = TokenBucket(QuotaWindows())
    assert bucket.take(11, 1, 5.0) == 0, "it begins full"
    assert bucket.owed_s(1, 5.0) == 0, "none is left, and none is owed"
    assert bucket.take(5, 1, 5.0) == pytest.approx(5.0)
    assert bucket.owed_s(1, 7.0) == pytest.approx(3.0)
    assert bucket.owed_s(1, 100.0) == 0
    assert bucket.take(12, 1, 200.0) == pytest.approx(1.0), "it holds eleven seconds' worth"


def test_what_is_taken_of_a_grant_counts_like_what_is_recorded() -> None:
    meter, exact = Rate(QuotaWindows()), Rate(QuotaWindows())
    now = 0.0
    for step in range(200):
        now += 0.07
        amount = float(step * 37 % 90)
        exact.record(amount, now)
        meter.left -= amount
        if meter.left < 0:
            meter.left += amount
            meter.settle(now)
            meter.record(amount, now)
            meter.grant(LIMIT * 10, now)
        if step % 3 == 0:
            meter.settle(now)
            assert meter.total(now) == pytest.approx(exact.total(now), rel=0.1)
    meter.settle(now)
    assert meter.total(now + 5) == pytest.approx(exact.total(now + 5), rel=0.1)


def test_a_grant_is_what_is_left_below_the_limit() -> None:
    meter = Rate(QuotaWindows())
    meter.record(300, 0.0)
    meter.grant(1000, 0.5)
    assert meter.left == 700
    meter.left -= 650
    meter.settle(1.0)
    assert meter.total(1.0) == 950
    assert meter.left == 0, "the grant has ended"
    meter.record(100, 1.0)
    meter.grant(1000, 1.0)
    assert meter.left == 0, "nothing is granted at the limit"
