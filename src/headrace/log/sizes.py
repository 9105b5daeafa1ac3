"""The size of each log of a data folder at its clean stop, to detect files that shrank since.

A clean stop guarantees that everything was written. It cannot guarantee what happens to the files
while the broker is down.
"""

from collections.abc import Collection, Iterable, Iterator

from headrace.disk import Disk
from headrace.log.checkpoints import read_offsets, write_offsets
from headrace.log.log import Log
from headrace.log.segment_files import LOG
from headrace.types import TopicPartition

SIZES = "clean-size-checkpoint"


def write_sizes(
    disk: Disk, folder: str, logs: Iterable[Log], unopened: Collection[TopicPartition]
) -> None:
    """Save the size of each log; for logs that were not opened, the last known size."""
    path = f"{folder}/{SIZES}"
    known = read_offsets(disk, path) or {}
    sizes = {partition: size for partition, size in known.items() if partition in unopened}
    sizes.update((log.partition, log.segments.size_bytes) for log in logs)
    write_offsets(disk, path, sizes)


def shrunken_logs(disk: Disk, folder: str) -> Iterator[tuple[TopicPartition, int]]:
    """The partitions whose files are shorter than that, and by how many bytes."""
    for partition, size in (read_offsets(disk, f"{folder}/{SIZES}") or {}).items():
        place = f"{folder}/{partition}"
        names = disk.list_folder(place) if disk.is_folder(place) else []
        found = sum(disk.file_size(f"{place}/{name}") for name in names if name.endswith(LOG))
        if found < size:
            yield partition, size - found
