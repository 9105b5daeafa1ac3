"""Large requests in parts: which array of a request is divided, and how the responses are combined.

A request that lists many elements is handled as several smaller requests, one after the other, and
the client gets one response. Handlers are not affected: the decisions of one part are written
before the next part begins, and other clients are served in between.

Some handlers refuse elements that are named more than once. Two duplicates then go into the same
part, and further ones are dropped, because they would get the same response. A configuration that
is requested more than once is described once.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.wire.steps import Steps

_Message = Any  # one of kio's frozen dataclasses
_STRIDE = 256
"""Elements that are processed between two yields."""
_PART_S = 0.002
_LEAST, _MOST = 2, 512


class Cut(NamedTuple):
    """How requests of one API are divided."""

    elements: tuple[str, ...]
    """The path to the array in the request, outermost field first."""
    answers: tuple[str, ...]
    """The path to the array in the response."""
    size: int = 64
    """The number of elements in the first part, which together take little time. A power of two."""
    key: Callable[[_Message], object] | None = None
    """The name of an element, where duplicates matter; at the top of the request."""
    mentions: int = 2
    """How many duplicates are handled: two if the handler refuses duplicates."""


def _name(topic: _Message) -> object:
    return topic.name


def _itself(element: _Message) -> object:
    return element


def _resource(resource: _Message) -> object:
    return resource.resource_type, resource.resource_name


_PARTITIONS = ("topics", "partitions")
_INDEXES = ("topics", "partition_indexes")

PRODUCED = Cut(("topic_data", "partition_data"), ("responses", "partition_responses"), size=32)

CUTS: dict[int, Cut] = {
    2: Cut(_PARTITIONS, _PARTITIONS),
    8: Cut(_PARTITIONS, _PARTITIONS, size=256),
    9: Cut(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"), size=256),
    10: Cut(("coordinator_keys",), ("coordinators",)),
    13: Cut(("members",), ("members",), size=32),
    15: Cut(("groups",), ("groups",), size=32),
    19: Cut(("topics",), ("topics",), size=8, key=_name),
    20: Cut(
        ("topics",), ("responses",), size=32, key=lambda topic: (topic.name, topic.topic_id)
    ),
    21: Cut(_PARTITIONS, _PARTITIONS),
    23: Cut(_PARTITIONS, _PARTITIONS),
    24: Cut(("transactions",), ("results_by_transaction",), size=8),
    27: Cut(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),
    28: Cut(_PARTITIONS, _PARTITIONS, size=256),
    32: Cut(("resources",), ("results",), size=16, key=_itself, mentions=1),
    33: Cut(("resources",), ("responses",), size=16, key=_resource),
    34: Cut(("dirs", "topics", "partitions"), ("results", "partitions"), size=32),
    37: Cut(("topics",), ("results",), size=8, key=_name),
    42: Cut(("groups_names",), ("results",), size=32),
    43: Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
    44: Cut(("resources",), ("responses",), size=16, key=_resource),
    45: Cut(_PARTITIONS, ("responses", "partitions"), size=32),
    46: Cut(_INDEXES, _PARTITIONS, size=256),
    47: Cut(_PARTITIONS, _PARTITIONS, size=256),
    55: Cut(_PARTITIONS, _PARTITIONS),
    61: Cut(_INDEXES, _PARTITIONS),
    65: Cut(("transactional_ids",), ("transaction_states",), size=32),
    69: Cut(("group_ids",), ("groups",), size=32),
}  # fmt: skip


class Pace:
    """The size of the next part: as many elements as take about 2 ms."""

    def __init__(self, cut: Cut) -> None:
        self.elements = cut.size

    def took(self, seconds: float) -> None:
        """Adapt the size to the time that the last part took. It stays even: see `Cut.key`."""
        if seconds < _PART_S / 2:
            self.elements = min(self.elements * 2, _MOST)
        elif seconds > _PART_S:
            self.elements = max(self.elements // 2, _LEAST)


def prepare(request: _Message, cut: Cut) -> Steps[list[_Message]]:
    """The requests to divide into parts, one after the other."""
    if cut.key is None:
        return [request]
    return (yield from _separate_duplicates(request, cut.elements[0], cut.key, cut.mentions))


def parts(request: _Message, cut: Cut, pace: Pace) -> Iterator[_Message]:
    """The parts of a request."""
    for part, _ in _split(request, cut.elements, pace):
        yield part


def is_large(request: _Message, cut: Cut) -> bool:
    """Whether a request should be handled in parts."""
    return _left(request, cut.elements, cut.size) < 0


def _left(whole: _Message, path: tuple[str, ...], left: int) -> int:
    """`left` minus the number of elements at `path`. Counting stops when it is negative."""
    elements = getattr(whole, path[0]) or ()
    if len(path) == 1 or len(elements) > left:
        return left - len(elements)
    for element in elements:
        left = _left(element, path[1:], left)
        if left < 0:
            break
    return left


def _separate_duplicates(
    request: _Message, field: str, key: Callable[[_Message], object], mentions: int
) -> Steps[list[_Message]]:
    """A request for the unique elements, and one for the duplicates, limited to `mentions` each."""
    by_key: dict[object, list[_Message]] = {}
    for number, element in enumerate(getattr(request, field)):
        by_key.setdefault(key(element), []).append(element)
        if not number % _STRIDE:
            yield
    once, twice = [], []
    for number, named in enumerate(by_key.values()):
        if len(named) == 1:
            once += named
        else:
            twice += named[:mentions]
        if not number % _STRIDE:
            yield
    return [replace(request, **{field: tuple(some)}) for some in (once, twice) if some]


def _split(whole: _Message, path: tuple[str, ...], pace: Pace) -> Iterator[tuple[_Message, int]]:
    """`whole` with some of the elements at `path` at a time, and the number of these elements.

    An outer element without inner elements counts as one, so that it gets a response too.
    """
    field, rest = path[0], path[1:]
    elements = getattr(whole, field)
    if not elements:
        yield whole, 1
    elif not rest:
        start = 0
        while start < len(elements):
            part = elements[start : start + pace.elements]
            start += len(part)
            yield replace(whole, **{field: part}), len(part)
    else:
        together: list[_Message] = []
        count = 0
        for element in elements:
            for place, (part, held) in enumerate(_split(element, rest, pace)):
                # Two pieces of one element never share a part, so that their responses can be
                # combined.
                if together and (place > 0 or count + held > pace.elements):
                    yield replace(whole, **{field: tuple(together)}), count
                    together, count = [], 0
                together.append(part)
                count += held
        yield replace(whole, **{field: tuple(together)}), count


class CombinedResponse:
    """The response to a request that was handled in parts."""

    def __init__(self, answers: tuple[str, ...]) -> None:
        self._field = answers[0]
        self._rows = _Rows(answers[1:])
        self._first: _Message = None

    def add(self, response: _Message) -> bool:
        """Add the response to the next part; False if it refuses the request as a whole."""
        if self._first is None or _code(response):
            self._first = response
        self._rows.add(getattr(response, self._field))
        return not _code(response)

    def response(self) -> _Message:
        """The combined response."""
        return replace(self._first, **{self._field: self._rows.all()})


class _Rows:
    """The elements of an array of the response.

    The last one stays open, because the next part may continue it: its own array, the first one of
    `path`, is collected separately. So the cost of adding a part does not grow with the total.
    """

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._closed: list[_Message] = []
        self._open: _Message = None
        self._below: _Rows | None = None

    def add(self, rows: tuple[_Message, ...]) -> None:
        """Add the elements of the next part. The first one may be the second half of the last."""
        if not self._path or not rows:
            self._closed += rows
            return
        field = self._path[0]
        if self._below is not None and replace(rows[0], **{field: ()}) == self._open:
            self._below.add(getattr(rows[0], field))
            rows = rows[1:]
        if rows:
            self._close()
            self._closed += rows[:-1]
            self._open = replace(rows[-1], **{field: ()})
            self._below = _Rows(self._path[1:])
            self._below.add(getattr(rows[-1], field))

    def all(self) -> tuple[_Message, ...]:
        """All elements."""
        self._close()
        return tuple(self._closed)

    def _close(self) -> None:
        if self._below is not None:
            self._closed.append(replace(self._open, **{self._path[0]: self._below.all()}))
            self._below = None


def _code(response: _Message) -> int:
    """The error of the response as a whole, if responses of this API have one."""
    code: int = getattr(response, "error_code", 0)
    return code
