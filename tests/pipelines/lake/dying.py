"""A file system whose process dies after so many changes, for the steps of a commit."""

from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

from headrace.pipelines.lake import stores

CHANGES = ("move", "delete_file", "delete_dir", "create_dir", "open_output_stream")
_opened = stores.opened


class Killed(BaseException):
    """Ends a commit as the death of its process does: nothing handles it."""


class DyingFiles:
    """Takes the place of `stores.opened`."""

    def __init__(self, changes: int) -> None:
        self._left = changes

    def __call__(self, uri: str, options: Mapping[str, str]) -> tuple[Any, str]:
        filesystem, path = _opened(uri, options)
        return _Dying(filesystem, self), path

    def change(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1


class _Dying:
    def __init__(self, filesystem: pafs.FileSystem, dying: DyingFiles) -> None:
        self._filesystem = filesystem
        self._dying = dying

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._filesystem, name)
        if name not in CHANGES:
            return found

        def change(*words: object, **named: object) -> object:
            self._dying.change()
            return found(*words, **named)

        return change
