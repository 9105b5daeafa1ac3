"""DescribeCluster describes the cluster."""

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

from headrace.apis.cluster.describe_cluster import describe_cluster
from headrace.errors import ErrorCode
from headrace.wire.primitives import i8
from tests.apis.one_broker import OneBroker

NONE = ErrorCode.NONE


@pytest.mark.parametrize(("asked", "operations"), [(False, -(2**31)), (True, 0x1FA0)])
def test_the_cluster_describes_itself(broker: OneBroker, asked: bool, operations: int) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=asked, include_fenced_brokers=False
    )
    answer = broker.ask(describe_cluster, request)
    assert ErrorCode(answer.error_code) == NONE
    assert (answer.cluster_id, answer.controller_id) == (broker.metadata.image.cluster_id, 1)
    (one,) = answer.brokers
    assert (one.broker_id, one.host, one.port, one.rack) == (1, "localhost", 9092, "rack-a")
    assert answer.cluster_authorized_operations == operations


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_described_here(broker: OneBroker, endpoint: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=i8(endpoint),
        include_fenced_brokers=False,
    )
    answer = broker.ask(describe_cluster, request)
    assert (ErrorCode(answer.error_code), answer.brokers) == (code, ())
