"""The options of `groups reset-offsets`, without a broker."""

import pytest

from headrace.admin.group_reset import ResetScope
from headrace.cli.failures import ExitCode, Failure
from headrace.cli.groups.reset_options import parse_scope


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("clicks", ResetScope("clicks", None)),
        ("clicks:0", ResetScope("clicks", (0,))),
        ("a.b-c_d:4-6,0,5", ResetScope("a.b-c_d", (0, 4, 5, 6))),
    ],
)
def test_a_topic_may_name_partitions_and_ranges(text: str, scope: ResetScope) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize("text", ["", ":1", "clicks:", "clicks:x", "clicks:1-", "clicks:-1"])
def test_anything_else_is_bad_usage(text: str) -> None:
    with pytest.raises(Failure) as failed:
        parse_scope(text)
    assert failed.value.exit_code is ExitCode.USAGE
