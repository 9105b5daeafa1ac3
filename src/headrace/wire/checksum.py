"""CRC-32C, the checksum of record batches and snapshots, in hardware if the processor supports it.

Importing the `crc32c` package takes a sixth of the broker's start time, because it looks up its
own version. This module loads only its native module, which has the same function.
"""

import importlib.util
from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import Protocol


class Crc32c(Protocol):
    """The checksum of some bytes."""

    def __call__(self, data: bytes | bytearray | memoryview, /) -> int: ...


def _native() -> Crc32c:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("_crc32c", places) if places else None
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        from crc32c import crc32c as ordinary

        return ordinary  # type: ignore[no-any-return]
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c = _native()
