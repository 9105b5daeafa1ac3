"""What tests of client metrics ask a broker for."""

import re
import time
import urllib.request
import uuid
from collections.abc import Callable

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.incremental_alter_configs.v1 import request as altering
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.connection import Connection
from headrace.wire.primitives import i8, i32

PATIENCE_S = 60
_SERIES = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, dict[str, str], float]
"""Name, labels and value."""


def connect(bootstrap: str, client_id: str = "raw") -> Connection:
    addresses = parse_bootstrap(bootstrap)
    return Connection(addresses[0], ClientConfig(addresses, client_id=client_id))


def subscribe(connection: Connection, name: str, **configs: str) -> None:
    resource = altering.AlterConfigsResource(
        resource_type=i8(16),
        resource_name=name,
        configs=tuple(
            altering.AlterableConfig(
                name=key.replace("_", "."), config_operation=i8(0), value=value
            )
            for key, value in configs.items()
        ),
    )
    request = altering.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = connection.ask(request, IncrementalAlterConfigsResponse).responses
    assert int(result.error_code) == 0, result.error_message


def ask_for_subscription(
    connection: Connection, me: uuid.UUID | None = None
) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=me)
    return connection.ask(request, GetTelemetrySubscriptionsResponse)


def push(
    connection: Connection, me: uuid.UUID | None, subscription_id: int, data: bytes, codec: int = 0
) -> int:
    """The error code of a push."""
    request = PushTelemetryRequest(
        client_instance_id=me,
        subscription_id=i32(subscription_id),
        terminating=False,
        compression_type=i8(codec),
        metrics=data,
    )
    return int(connection.ask(request, PushTelemetryResponse).error_code)


def pushed_series(port: int) -> list[Series]:
    """The series of clients on a broker's /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = (_SERIES.fullmatch(line) for line in text.splitlines())
    return [
        (one[1], dict(_LABEL.findall(one[2])), float(one[3]))
        for one in found
        if one and "client_instance_id=" in one[2]
    ]


def wait_for_series(
    port: int, wanted: Callable[[Series], bool], meanwhile: Callable[[], object] = lambda: None
) -> list[Series]:
    """All series that are wanted, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := [one for one in pushed_series(port) if wanted(one)]):
        assert time.monotonic() < deadline, pushed_series(port)
        meanwhile()
        time.sleep(0.05)
    return found
