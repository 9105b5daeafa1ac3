"""Damage in any file of a replica, with three brokers: the replica is made whole again.

Every field of the headers and entries that a log opens is damaged, in a replica of a topic of its
own. Meanwhile a healthy partition goes on, nothing that was acknowledged is lost, the damaged
replicas return to the in-sync set with the bytes that were written, and nothing but sentences is
logged. `tests/log/test_damaged_files.py` does the same with one log, and every bit.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from headrace.wire.batch import HEADER, read_header
from tests.simulation.damage_world import Case, DamageWorld, Files

LEADER_EPOCH = "partition leader epoch"
BATCH_FIELDS = (
    "base offset", "batch length", LEADER_EPOCH, "magic", "crc", "attributes",
    "last offset delta", "base timestamp", "max timestamp", "producer id", "producer epoch",
    "base sequence", "record count",
)  # fmt: skip


Damage = Callable[[bytearray], bytearray]
Field = tuple[str, int, int]


def fields_of(layout: str, names: Sequence[str]) -> list[Field]:
    """Name, position and size of each field of a struct."""
    found, at = [], 0
    for kind, name in zip(layout.lstrip(">"), names, strict=True):
        size = struct.calcsize(">" + kind)
        found.append((name, at, size))
        at += size
    return found


def positions(content: bytes | bytearray) -> list[int]:
    """Where each batch of a log file begins."""
    found, at = [], 0
    while at < len(content):
        found.append(at)
        at += read_header(content, at).size_bytes
    return found


# ------------------------------------------------------------------------------- batch headers

PLACES = {
    "the oldest batch": (0, 0),
    "a batch of an old segment": (1, 1),
    "the first batch of the active segment": (-1, 0),
    "the newest batch": (-1, -1),
}
"""Segment and batch."""


def flip_in_batch(files: Files, place: tuple[int, int], at: int, mask: int) -> None:
    segment, number = place
    name = files.names(".log")[segment]
    content = files.read(name)
    content[positions(content)[number] + at] ^= mask
    files.write(name, content)


def without_epochs(content: bytes) -> bytes:
    """Without the leader epochs of batches: no checksum covers them, as in Apache Kafka."""
    out = bytearray(content)
    for position in positions(content):
        out[position + 12 : position + 16] = bytes(4)
    return bytes(out)


def batch_cases(*, top: bool) -> list[Case]:
    return [
        Case(
            f"{name} of {place}",
            partial(
                flip_in_batch,
                place=PLACES[place],
                at=at if top else at + size - 1,
                mask=0x40 if top else 0x01,
            ),
            without_epochs if name == LEADER_EPOCH else bytes,
        )
        for place in PLACES
        for name, at, size in fields_of(HEADER.format, BATCH_FIELDS)
    ]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("top", [True, False], ids=["high-bit", "low-bit"])
def test_a_replica_with_a_damaged_batch_header_is_made_whole(top: bool, clean: bool) -> None:
    DamageWorld(1, batch_cases(top=top), clean=clean).run()


# --------------------------------------------------------------------------------- side files

ENTRIES = (
    (".index", 0, fields_of(">ii", ("relative offset", "position"))),
    (".timeindex", 0, fields_of(">qi", ("timestamp", "relative offset"))),
    (
        ".txnindex",
        0,
        fields_of(
            ">hqqqq",
            ("version", "producer id", "first offset", "last offset", "last stable offset"),
        ),
    ),
    (".snapshot", 0, fields_of(">hIi", ("version", "crc", "number of producers"))),
    (
        ".snapshot",
        10,
        fields_of(
            ">qhiqiqiq",
            ("producer id", "epoch", "last sequence", "last offset", "offset delta", "timestamp",
             "coordinator epoch", "first offset of the transaction"),
        ),
    ),
)  # fmt: skip
"""Of each kind of binary file: where its head or first entry begins, and the fields of that."""
TEXTS = ("leader-epoch-checkpoint", "transaction-index-checkpoint")
OF_ALL = (
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)  # fmt: skip
EPOCH_DIGIT = ("leader-epoch-checkpoint", 4)
"""The first epoch. Another digit there is not noticed: no checksum covers the file, as in Apache
Kafka, and the batches are not compared with it."""
WHOLE: dict[str, Damage] = {
    "emptied": lambda _: bytearray(),
    "cut": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: bytearray(len(content)),
    "grown": lambda content: content + b"\xff" * 13,
    "garbled": lambda content: bytearray(byte ^ 0x55 for byte in content),
}


def flip(at: int, mask: int) -> Damage:
    def damage(content: bytearray) -> bytearray:
        content[min(at, len(content) - 1)] ^= mask
        return content

    return damage


def spoil(files: Files, suffix: str, damage: Damage) -> None:
    """Damage the oldest of these files that is not empty, and the newest."""
    names = [name for name in files.names(suffix) if files.read(name)]
    assert names, f"there is no {suffix}"
    for name in {names[0], names[-1]}:
        files.write(name, damage(files.read(name)))


def remove(files: Files, suffix: str) -> None:
    for name in files.names(suffix):
        files.delete(name)


def side_file_cases() -> list[Case]:
    cases = []
    for suffix, start, fields in ENTRIES:
        for name, at, size in fields:
            high, low = flip(start + at, 0x40), flip(start + at + size - 1, 0x01)
            for bit, damage in (("high", high), ("low", low)):
                told = f"{bit} bit of {name} in {suffix}"
                cases.append(Case(told, partial(spoil, suffix=suffix, damage=damage)))
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot", *TEXTS):
        for name, damage in WHOLE.items():
            cases.append(Case(f"{suffix} {name}", partial(spoil, suffix=suffix, damage=damage)))
        cases.append(Case(f"{suffix} removed", partial(remove, suffix=suffix)))
    for suffix in TEXTS:
        for at in range(8):
            if (suffix, at) != EPOCH_DIGIT:
                damage = flip(at, 0x01)
                cases.append(
                    Case(f"byte {at} of {suffix}", partial(spoil, suffix=suffix, damage=damage))
                )
    return cases


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_replica_with_damaged_side_files_is_made_whole(clean: bool) -> None:
    DamageWorld(1, side_file_cases(), clean=clean).run()


def nothing(_files: Files) -> None: ...


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("name", OF_ALL)
def test_a_broker_with_a_damaged_checkpoint_of_all_partitions_loses_nothing(
    name: str, clean: bool
) -> None:
    cases = [Case("no damage of its own", nothing)]
    for damage in (*WHOLE.values(), flip(0, 0x01), flip(4, 0x01)):
        strike = partial(spoil, suffix=name, damage=damage)
        DamageWorld(1, cases, clean=clean, damage_all=strike).run()
