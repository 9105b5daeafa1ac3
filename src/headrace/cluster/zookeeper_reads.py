"""Reads many nodes in one request (multiRead), which ZooKeeper has since 3.6 and kazoo lacks.

A request is a list of operations, each behind a header; the answer is a list of results:

    header: int32 kind (4 get, -1 error or the end), uint8 whether this is the end, int32 error
    get:    int32 length, path in UTF-8, uint8 whether to watch
    result: int32 length, value, the node's Stat; or after a header of kind -1 an int32 error
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from kazoo.exceptions import EXCEPTIONS, NoNodeError

from headrace.cluster.store import StoreNode

_HEADER: Final = struct.Struct(">iBi")
_INT: Final = struct.Struct(">i")
# czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_STAT_VERSION: Final = 4
_GET: Final = _HEADER.pack(4, 0, -1)
_ERROR: Final = -1
_END: Final = _HEADER.pack(_ERROR, 1, -1)


@dataclass(frozen=True, slots=True)
class ReadNodes:
    """A multiRead request for kazoo; its result is a list of nodes, None for a missing node."""

    type: ClassVar[int] = 22  # multiRead
    places: tuple[str, ...]

    def serialize(self) -> bytes:
        """The request in ZooKeeper's encoding."""
        parts = []
        for place in self.places:
            path = place.encode()
            parts += [_GET, _INT.pack(len(path)), path, b"\0"]
        return b"".join([*parts, _END])

    def deserialize(self, answer: bytes, offset: int) -> list[StoreNode | None]:
        """The nodes; raises any error except that a node does not exist."""
        nodes: list[StoreNode | None] = []
        while True:
            kind, end, _ = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if end:
                return nodes
            (number,) = _INT.unpack_from(answer, offset)
            offset += _INT.size
            if kind == _ERROR:
                if number != NoNodeError.code:
                    raise EXCEPTIONS[number]()
                nodes.append(None)
                continue
            length = max(0, number)  # -1 for a node without a value, created by another program
            value = answer[offset : offset + length]
            stat = _STAT.unpack_from(answer, offset + length)
            offset += length + _STAT.size
            nodes.append(StoreNode(value, stat[_STAT_VERSION]))
