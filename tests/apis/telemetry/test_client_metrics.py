"""Client metrics: who is asked for what, when pushes are accepted, and what is kept of them."""

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import iscoroutine
from pathlib import Path

import pytest
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from headrace.apis.api_versions import offered_routes
from headrace.apis.context import Caller, RequestContext
from headrace.apis.routes import CLIENT_TELEMETRY
from headrace.apis.telemetry import client_metrics
from headrace.apis.telemetry.get_telemetry_subscriptions import get_telemetry_subscriptions
from headrace.apis.telemetry.push_telemetry import MAX_EXPANSION, push_telemetry
from headrace.clock import ManualClock
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings
from headrace.types import encode_uuid
from headrace.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from headrace.wire.primitives import i8, i32
from headrace.wire.steps import finish
from tests.apis.one_broker import OneBroker
from tests.support.otlp import counter, gauge, metrics_data, point
from tests.support.stores import python_process

INTERVAL_MS = 1000
MAX_BYTES = 100_000
NAME = "org.apache.kafka.producer.record.send.total"
SHOWN = "org_apache_kafka_producer_record_send_total"


@dataclass
class Asked:
    """What a client was told."""

    me: uuid.UUID
    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Pushing:
    """A broker without sockets, and clients that push to it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = OneBroker(folder, {"telemetry.max.bytes": str(MAX_BYTES), **given})
        clock = self.broker.services.clock
        assert isinstance(clock, ManualClock)
        self.clock = clock
        self.caller = Caller("10.0.0.7:4711")
        self.client_id = "me"

    def subscribe(self, name: str, **configs: str | None) -> None:
        """Set the configs of a subscription; None deletes one."""
        changes = tuple(
            ConfigChange(
                key.replace("_", "."), Operation.DELETE if value is None else Operation.SET, value
            )
            for key, value in configs.items()
        )
        (error,) = self.broker.metadata.alter_configs([Alteration("client-metrics", name, changes)])
        assert error is None, error

    def ask(self, me: uuid.UUID | None = None) -> Asked:
        response = get_telemetry_subscriptions(
            self.broker.services,
            GetTelemetrySubscriptionsRequest(client_instance_id=me),
            RequestContext(0, self.client_id, self.caller),
        )
        assert response.client_instance_id is not None
        assert response.delta_temporality
        assert response.accepted_compression_types == (ZSTD, LZ4, GZIP, SNAPPY)
        assert response.telemetry_max_bytes == MAX_BYTES
        return Asked(
            response.client_instance_id,
            response.subscription_id,
            response.requested_metrics,
            response.push_interval.seconds * 1000 + response.push_interval.microseconds // 1000,
        )

    def push(
        self, asked: Asked, data: bytes = b"", *, codec: int = NONE, terminating: bool = False
    ) -> None:
        request = PushTelemetryRequest(
            client_instance_id=asked.me,
            subscription_id=i32(asked.subscription_id),
            terminating=terminating,
            compression_type=i8(codec),
            metrics=data,
        )
        context = RequestContext(0, self.client_id, self.caller)

        async def run() -> PushTelemetryResponse:
            response = push_telemetry(self.broker.services, request, context)
            return await response if iscoroutine(response) else response  # type: ignore[return-value]

        assert int(asyncio.run(run()).error_code) == ErrorCode.NONE

    def wait(self, ms: int = INTERVAL_MS) -> None:
        self.clock.advance(ms)

    def shown(self) -> list[str]:
        """What /metrics shows of clients, without comments and the broker's own numbers."""
        text = finish(self.broker.services.render_client_metrics())
        return [line for line in text.splitlines() if not line.startswith(("#", "headrace_"))]

    def own(self, name: str) -> int:
        """One of the broker's own numbers about clients."""
        text = finish(self.broker.services.render_client_metrics())
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return int(lines.get(f"headrace_client_metrics_{name}", "0"))


@pytest.fixture
def pushing(tmp_path: Path) -> Iterator[Pushing]:
    one = Pushing(tmp_path)
    one.subscribe("s", metrics="org.apache.kafka.producer.", interval_ms=str(INTERVAL_MS))
    yield one
    one.broker.close()


def code(refusal: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return refusal.value.code


def test_without_subscriptions_nothing_is_asked_for_and_nothing_is_kept(tmp_path: Path) -> None:
    pushing = Pushing(tmp_path)
    asked = pushing.ask()
    assert (asked.metrics, asked.interval_ms) == ((), 300_000)
    pushing.push(asked, metrics_data(counter(NAME, point(1))))
    assert pushing.shown() == []
    assert pushing.own('dropped_total{reason="not_subscribed"}') == 1


def test_a_subscription_gives_an_id_that_only_its_content_and_the_client_decide(
    pushing: Pushing, tmp_path: Path
) -> None:
    asked = pushing.ask()
    other = Pushing(tmp_path / "other")
    other.subscribe("x", metrics="org.apache.kafka.producer.", interval_ms=str(INTERVAL_MS))
    assert other.ask(asked.me) == asked
    assert other.ask().subscription_id != asked.subscription_id
    other.subscribe("x", interval_ms="2000")
    assert other.ask(asked.me).subscription_id != asked.subscription_id


def test_subscriptions_that_match_are_joined(pushing: Pushing) -> None:
    pushing.subscribe("t", metrics="b,a", interval_ms="500")
    pushing.subscribe("other", metrics="c", match="client_id=you", interval_ms="100")
    asked = pushing.ask()
    assert asked.metrics == ("a", "b", "org.apache.kafka.producer.")
    assert asked.interval_ms == 500
    pushing.subscribe("all", metrics="*")
    assert pushing.ask().metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=m.", True),
        ("client_id=m", False),
        ("client_software_name=librdkafka,client_software_version=2[.].*", True),
        ("client_software_name=librdkafka,client_software_version=1[.].*", False),
        ("client_source_address=10[.]0[.]0[.]7,client_source_port=47.*", True),
        ("client_source_port=48.*", False),
        ("client_instance_id=ID", True),
        ("client_id=(a+)+b", False),
    ],
)
def test_all_patterns_of_a_subscription_have_to_match(
    tmp_path: Path, match: str, matches: bool
) -> None:
    pushing = Pushing(tmp_path)
    pushing.caller.software_name, pushing.caller.software_version = "librdkafka", "2.16.0"
    me = uuid.uuid4()
    pushing.subscribe("s", metrics="*", match=match.replace("ID", encode_uuid(me)))
    assert pushing.ask(me).metrics == (("*",) if matches else ())


def test_growth_is_added_up_and_gauges_show_the_last_value(pushing: Pushing) -> None:
    asked = pushing.ask()
    gauge_name = "org.apache.kafka.producer.x"
    for total, level in ((3, 1.5), (4, 0.5)):
        topic = {"topic": 'a"b'}
        pushing.push(
            asked,
            metrics_data(
                counter(NAME, point(total, topic)),
                gauge(gauge_name, point(level)),
                resource={"transactional_id": "x"},
            ),
        )
        pushing.wait()
    labels = f'client_id="me",client_instance_id="{encode_uuid(asked.me)}",transactional_id="x"'
    assert pushing.shown() == [
        f'{SHOWN}{{{labels},topic="a\\"b"}} 7',
        f"org_apache_kafka_producer_x{{{labels}}} 0.5",
    ]
    text = finish(pushing.broker.services.render_client_metrics())
    assert f"# TYPE {SHOWN} counter\n" in text
    assert "# TYPE org_apache_kafka_producer_x gauge\n" in text


def test_a_gauge_that_is_no_longer_pushed_is_removed_and_a_counter_stays(pushing: Pushing) -> None:
    asked = pushing.ask()
    lag = "org.apache.kafka.producer.lag"
    both = [point(n, {"partition": str(n)}) for n in range(2)]
    pushing.push(asked, metrics_data(gauge(lag, *both), counter(NAME, point(1))))
    pushing.wait()
    pushing.push(asked, metrics_data(gauge(lag, both[1])))
    assert len(pushing.shown()) == pushing.own("series") == 2
    assert [line for line in pushing.shown() if "lag" in line and 'partition="1"' in line]
    pushing.wait()
    pushing.push(asked)
    assert [line.split("{")[0] for line in pushing.shown()] == [SHOWN]


def test_a_counter_goes_on_when_a_consumer_joins_its_group_again(pushing: Pushing) -> None:
    asked = pushing.ask()
    for member in ("a", "b"):
        resource = {"group_id": "g", "group_member_id": member}
        pushing.push(asked, metrics_data(counter(NAME, point(2)), resource=resource))
        pushing.wait()
    (line,) = pushing.shown()
    assert line.endswith('group_id="g"} 4')


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_pushes_may_be_compressed_and_large(pushing: Pushing, codec: int) -> None:
    points = [point(n, {"partition": str(n), "topic": "t" * 200}) for n in range(1500)]
    data = metrics_data(counter(NAME, *points))
    if codec == NONE:
        data = metrics_data(counter(NAME, *points[:300]))
    pushing.push(pushing.ask(), compress(codec, data), codec=codec)
    assert len(pushing.shown()) == (300 if codec == NONE else 1500)


def test_metrics_that_were_not_asked_for_are_dropped(pushing: Pushing) -> None:
    data = metrics_data(counter("org.apache.kafka.consumer.x", point(1)), counter(NAME, point(1)))
    pushing.push(pushing.ask(), data)
    assert [line.split("{")[0] for line in pushing.shown()] == [SHOWN]


def test_a_client_cannot_push_metrics_of_the_broker(pushing: Pushing) -> None:
    pushing.subscribe("s", metrics="*")
    data = metrics_data(
        counter("headrace_connections", point(1)),
        gauge('x"} 1\nup', point(2, {'k"\n': "a\nb", "client_id": "root", "__name__": "up"})),
    )
    asked = pushing.ask()
    pushing.push(asked, data)
    own = f'client_id="me",client_instance_id="{encode_uuid(asked.me)}"'
    assert pushing.shown() == [
        f"client_headrace_connections{{{own}}} 1",
        f'client_x___1_up{{{own},k__="a\\nb",label___name__="up"}} 2',
    ]


# --- when ---------------------------------------------------------------------------------------


def test_requests_before_the_interval_are_throttled(pushing: Pushing) -> None:
    asked = pushing.ask()
    with pytest.raises(KafkaError) as early_get:
        pushing.ask(asked.me)
    pushing.push(asked)  # the first push after a subscription may come early
    with pytest.raises(KafkaError) as early_push:
        pushing.push(asked)
    assert code(early_get) == code(early_push) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    pushing.wait()
    pushing.push(asked)
    assert pushing.own('refused_total{error="THROTTLING_QUOTA_EXCEEDED"}') == 2


def test_a_changed_subscription_is_told_at_once_and_its_first_push_is_accepted(
    pushing: Pushing,
) -> None:
    asked = pushing.ask()
    pushing.push(asked, metrics_data(counter(NAME, point(1))))
    pushing.subscribe("s", metrics="*")
    with pytest.raises(KafkaError) as unknown:
        pushing.push(asked)
    assert code(unknown) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert pushing.shown() == []  # it is asked for other metrics now
    again = pushing.ask(asked.me)
    assert again.metrics == ("*",)
    pushing.push(again, metrics_data(counter(NAME, point(1))))
    assert len(pushing.shown()) == 1


def test_a_subscription_that_does_not_concern_a_client_changes_nothing_for_it(
    pushing: Pushing,
) -> None:
    asked = pushing.ask()
    pushing.push(asked, metrics_data(counter(NAME, point(1))))
    pushing.subscribe("other", metrics="*", match="client_id=you")
    with pytest.raises(KafkaError) as early:
        pushing.push(asked)
    assert code(early) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert len(pushing.shown()) == 1


def test_without_its_last_subscription_nothing_is_kept(pushing: Pushing) -> None:
    pushing.push(pushing.ask(), metrics_data(counter(NAME, point(1))))
    pushing.subscribe("s", metrics=None, interval_ms=None)
    assert pushing.shown() == []


def test_a_client_that_terminates_pushes_once_more_at_any_time(pushing: Pushing) -> None:
    asked = pushing.ask()
    pushing.push(asked)
    pushing.push(asked, metrics_data(counter(NAME, point(1))), terminating=True)
    assert len(pushing.shown()) == 1
    for terminating in (True, False, False):
        pushing.wait()
        with pytest.raises(KafkaError) as after:
            pushing.push(asked, terminating=terminating)
        assert code(after) == ErrorCode.INVALID_REQUEST


def test_silent_clients_are_forgotten_with_their_metrics(pushing: Pushing) -> None:
    asked = pushing.ask()
    pushing.push(asked, metrics_data(counter(NAME, point(1))))
    pushing.wait(59_000)
    assert len(pushing.shown()) == 1
    pushing.wait(6_000)
    assert (pushing.shown(), pushing.own("clients"), pushing.own("series")) == ([], 0, 0)
    pushing.push(asked, metrics_data(counter(NAME, point(1))))  # it comes back with the same ids
    assert len(pushing.shown()) == 1


# --- what is refused ------------------------------------------------------------------------------


def test_a_push_needs_an_instance_id(pushing: Pushing) -> None:
    asked = pushing.ask()
    for me in (uuid.UUID(int=0), uuid.UUID(int=1)):
        with pytest.raises(KafkaError) as refusal:
            pushing.push(Asked(me, asked.subscription_id, (), 0))
        assert code(refusal) == ErrorCode.INVALID_REQUEST


def test_a_push_with_another_subscription_id_is_refused(pushing: Pushing) -> None:
    asked = pushing.ask()
    with pytest.raises(KafkaError) as refusal:
        pushing.push(Asked(asked.me, asked.subscription_id ^ 1, (), 0))
    assert code(refusal) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    pushing.push(pushing.ask(asked.me))


@pytest.mark.parametrize(
    ("data", "codec", "expected"),
    [
        (b"", 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"garbage", NONE, ErrorCode.INVALID_RECORD),
        (b"garbage", ZSTD, ErrorCode.INVALID_RECORD),
        (compress(GZIP, b"\x10\x00" * 200_000)[:-20], GZIP, ErrorCode.INVALID_RECORD),
        (bytes(MAX_BYTES + 1), NONE, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(ZSTD, bytes(MAX_EXPANSION * MAX_BYTES + 1)), ZSTD, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(GZIP, bytes(50_000_000)), GZIP, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_hostile_pushes_are_refused(
    pushing: Pushing, data: bytes, codec: int, expected: ErrorCode
) -> None:
    asked = pushing.ask()
    with pytest.raises(KafkaError) as refusal:
        pushing.push(asked, data, codec=codec)
    assert code(refusal) == expected
    pushing.wait()
    pushing.push(asked, metrics_data(counter(NAME, point(1))))
    assert len(pushing.shown()) == 1


# --- bounds ---------------------------------------------------------------------------------------


def test_the_series_of_one_client_and_of_all_are_bounded(tmp_path: Path) -> None:
    limits = {
        "headrace_client_metrics_max_series": "25",
        "headrace_client_metrics_max_series_per_client": "10",
    }
    pushing = Pushing(tmp_path, **limits)
    pushing.subscribe("s", metrics="*")
    data = metrics_data(*[gauge(f"m{n}", point(n)) for n in range(12)])
    clients = [pushing.ask() for _ in range(3)]
    for asked in clients:
        pushing.push(asked, data)
    assert (len(pushing.shown()), pushing.own("series"), pushing.own("clients")) == (25, 25, 3)
    assert pushing.own('dropped_total{reason="max_series_per_client"}') == 4
    assert pushing.own('dropped_total{reason="max_series"}') == 7
    pushing.wait(3_600_000)
    assert (pushing.shown(), pushing.own("series")) == ([], 0)


def test_long_names_and_labels_are_dropped(pushing: Pushing) -> None:
    pushing.subscribe("s", metrics="*")
    data = metrics_data(
        gauge("n" * 10_000, point(1)),
        gauge("labels", point(1, {"a": "v" * 10_000})),
        gauge("good", point(1)),
    )
    pushing.push(pushing.ask(), data)
    assert [line.split("{")[0] for line in pushing.shown()] == ["client_good"]


def test_a_name_has_one_type(pushing: Pushing) -> None:
    pushing.push(pushing.ask(), metrics_data(counter(NAME, point(1))))
    pushing.push(pushing.ask(), metrics_data(gauge(NAME, point(1))))
    assert len(pushing.shown()) == 1
    assert pushing.own('dropped_total{reason="type"}') == 1


def test_the_clients_that_are_remembered_are_bounded(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics, "MAX_CLIENTS", 2)
    clients = [pushing.ask() for _ in range(2)]
    pushing.push(clients[0], metrics_data(counter(NAME, point(1))))
    pushing.push(clients[1], metrics_data(counter(NAME, point(2))))
    pushing.ask()
    assert pushing.own("clients") == 2
    assert [line.rsplit(" ", 1)[1] for line in pushing.shown()] == ["2"]


def test_the_apis_are_offered_only_where_metrics_are_served() -> None:
    silent = offered_routes(Settings.parse({}))
    serving = offered_routes(Settings.parse({"headrace.metrics.address": "127.0.0.1:9180"}))
    assert [row for row in serving if row not in silent] == list(CLIENT_TELEMETRY)


START_A_BROKER = """
import asyncio, sys
from headrace.broker.server import Server
from headrace.settings import Settings
folder, *given = sys.argv[1:]
settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **dict(one.split("=") for one in given)}
parts = Server(Settings.parse(settings), (folder,), 1).parts
async def start():
    parts.start()
    await parts.stop()
asyncio.run(start())
parts.close()
print("headrace.apis.telemetry.push_telemetry" in sys.modules)
"""


@pytest.mark.parametrize(("address", "loaded"), [("127.0.0.1:0", "True"), ("", "False")])
def test_a_broker_that_offers_client_metrics_loads_their_code_beside_its_work(
    tmp_path: Path, address: str, loaded: str
) -> None:
    """Otherwise the first request of a client would stop the event loop."""
    given = f"headrace.metrics.address={address}"
    with python_process(START_A_BROKER, str(tmp_path), given) as process:
        assert process.stdout is not None
        assert process.stdout.read() == f"{loaded}\n"
