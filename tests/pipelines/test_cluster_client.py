"""Which cluster a source or sink talks to: the one of its options, else the one that was set up."""

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.cluster_client import cluster_client
from headrace.pipelines.sink import options as sink_options
from headrace.pipelines.source import options
from headrace.types import Address


def test_an_option_wins_over_the_environment() -> None:
    client = cluster_client({"bootstrap.servers": "mine:1"}, {"HEADRACE_BOOTSTRAP": "other:2"})
    assert client.bootstrap == (Address("mine", 1),)
    assert client.client_id == "headrace-spark"


def test_without_either_the_option_is_asked_for_by_its_name() -> None:
    with pytest.raises(ClientError, match=r"kafka\.bootstrap\.servers"):
        cluster_client({}, {})


def test_source_and_sink_need_no_address_where_headrace_spark_gave_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "there:9")
    source = options.parse_options({"subscribe": "t"}, streaming=True)
    sink = sink_options.parse_options({"topic": "t"})
    assert source.client.bootstrap == sink.client.bootstrap == (Address("there", 9),)
