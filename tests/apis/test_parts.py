"""The parts of a request are equivalent to the whole, and their responses are combined."""

from dataclasses import dataclass
from typing import Any

from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from headrace.apis.parts import CUTS, CombinedResponse, Cut, Pace, is_large, parts, prepare
from headrace.apis.routes import ROUTES
from headrace.wire import codec, codec_fields
from headrace.wire.steps import finish
from tests.support.messages import filled


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outer:
    inners: tuple[Inner, ...]
    error_code: int = 0


NUMBERS = Cut(("inners", "numbers"), ("inners", "numbers"), size=4)
NAMES = Cut(("inners",), ("inners",), size=4, key=lambda inner: inner.name)


def cut_up(request: Any, cut: Cut) -> list[Any]:
    pace = Pace(cut)
    return [part for whole in finish(prepare(request, cut)) for part in parts(whole, cut, pace)]


def joined(responses: list[Any], cut: Cut) -> Any:
    whole = CombinedResponse(cut.answers)
    for response in responses:
        if not whole.add(response):
            break
    return whole.response()


def test_every_cut_names_arrays_that_the_messages_have() -> None:
    for key, cut in CUTS.items():
        for shape, path in (
            (codec.request_class(key), cut.elements),
            (codec.response_class(key), cut.answers),
        ):
            of: type = shape
            for name in path:
                field = next(one for one in codec_fields.fields(of) if one.name == name)
                assert field.array, (ROUTES[key].name, name)
                of = field.entity or object


def test_the_parts_of_a_request_make_the_whole() -> None:
    request = Outer(
        (Inner("a", tuple(range(10))), Inner("b", ()), Inner("c", (1, 2)), Inner("d", (3,)))
    )
    found = cut_up(request, NUMBERS)
    assert max(sum(len(one.numbers) for one in part.inners) for part in found) <= 4
    assert len(found) > 3
    assert joined(found, NUMBERS) == request


def test_a_request_of_a_real_api_is_cut_between_its_partitions() -> None:
    shape = codec.request_class(2)
    topics = tuple(
        filled(ListOffsetsTopic, {"name": name, "partitions": tuple(
            filled(ListOffsetsPartition, {"partition_index": n}) for n in range(100)
        )}) for name in ("a", "b")
    )  # fmt: skip
    request: Any = filled(shape, {"topics": topics})
    assert isinstance(request, ListOffsetsRequest)
    assert is_large(request, CUTS[2])
    found = cut_up(request, CUTS[2])
    assert len(found) > 3
    assert joined(found, CUTS[2]) == request


def test_what_is_named_twice_comes_into_one_part_twice() -> None:
    names = ["a", "b", "x", "c", "d", "e", "x", "f", "y", "x", "y"]
    found = cut_up(Outer(tuple(Inner(name, ()) for name in names)), NAMES)
    by_part = [[one.name for one in part.inners] for part in found]
    assert sorted(name for part in by_part for name in part) == sorted("abcdefxxyy")
    for part in by_part:
        assert part.count("x") in (0, 2)
        assert part.count("y") in (0, 2)


def test_a_part_that_is_refused_as_a_whole_is_the_answer() -> None:
    first = Outer((Inner("a", (1,)),))
    refused = Outer((), error_code=15)
    assert joined([first, refused, Outer((Inner("z", ()),))], NUMBERS).error_code == 15


def test_parts_become_smaller_when_they_take_long_and_larger_when_they_do_not() -> None:
    pace = Pace(NUMBERS)
    pace.took(0.1)
    assert pace.elements == 2
    for _ in range(20):
        pace.took(0.1)
    assert pace.elements == 2
    for _ in range(20):
        pace.took(0.0001)
    assert pace.elements == 512


def test_the_parts_make_the_whole_when_their_size_changes() -> None:
    request = Outer((Inner("a", tuple(range(50))), Inner("b", (1,)), Inner("c", tuple(range(30)))))
    pace = Pace(NUMBERS)
    found = []
    for part in parts(request, NUMBERS, pace):
        found.append(part)
        pace.took(0.0001 if len(found) % 5 else 0.1)
    assert joined(found, NUMBERS) == request
