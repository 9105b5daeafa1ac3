"""The route table."""

import pytest

from headrace.service.errors import HttpError
from headrace.service.request import Request
from headrace.service.routes import HttpRoute, RouteTable


async def handler(_: Request) -> object:
    return None


def table(*patterns: str) -> RouteTable[Request]:
    return RouteTable([HttpRoute("GET", pattern, handler) for pattern in patterns])


def test_a_fixed_part_wins_over_a_parameter_in_any_order() -> None:
    for patterns in (("/a/{x}", "/a/b"), ("/a/b", "/a/{x}")):
        found = table(*patterns)
        assert found.find("GET", "/a/b").pattern == "/a/b"
        assert found.find("GET", "/a/c").path == {"x": "c"}


def test_slashes_at_the_ends_do_not_matter_and_those_inside_do() -> None:
    found = table("/", "/a/{x}")
    assert found.find("GET", "/").pattern == "/"
    assert found.find("GET", "/a/b/").path == {"x": "b"}
    assert found.find("GET", "/a/b%2F").path == {"x": "b/"}
    with pytest.raises(HttpError) as missing:
        found.find("GET", "/a//b")
    assert missing.value.status == 404


def test_a_row_that_is_there_twice_or_begins_with_a_parameter_is_an_error() -> None:
    with pytest.raises(AssertionError, match="twice"):
        table("/a", "/a")
    with pytest.raises(AssertionError, match="begins with a parameter"):
        table("/{x}/a")
