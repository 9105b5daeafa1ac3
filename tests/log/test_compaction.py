"""The records that compaction keeps, by cases and compared with a plain model."""

import random
from dataclasses import replace

import pytest

from headrace.disk.memory import MemoryDisk
from headrace.log.compaction.compaction import compact
from headrace.log.compaction.job import Failed
from headrace.log.compaction.start import CompactionLimits, job_for
from headrace.log.log import Log
from headrace.log.segment_files import LOG
from headrace.settings import LogSettings
from headrace.wire.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    read_header,
    stamp_append_time,
)
from headrace.wire.markers import decode_marker
from headrace.wire.records import Record, encode_batch
from tests.log.compacting import (
    COMPACT,
    LIMITS,
    batches,
    compacted,
    mark,
    planned,
    put,
    records,
    seal,
    values,
)
from tests.log.samples import NOW, ORDERS, ORDERS_ID, append, new_log, open_directory, reopened

ONE = replace(COMPACT, segment_bytes=1 << 20)


def log_of(settings: LogSettings = COMPACT) -> Log:
    return new_log(MemoryDisk(), settings)


# ------------------------------------------------------------------------------------ records


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_last_value_of_each_key_stays_at_its_offset(codec: int) -> None:
    log = log_of()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    put(log, (b"b", b"2"), (b"c", b"1"), codec=codec)
    put(log, (b"", b"empty key"), (b"a", b"3"), codec=codec)
    seal(log)
    compacted(log)
    assert values(log) == [
        (3, b"b", b"2"), (4, b"c", b"1"), (5, b"", b"empty key"), (6, b"a", b"3")
    ]  # fmt: skip
    assert {header.attributes & CODEC_MASK for header, _ in batches(log)} == {codec}


def test_a_batch_keeps_everything_but_the_records_that_went() -> None:
    log = log_of()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), producer=(7, 2, 40), timestamp=NOW + 5)
    put(log, (b"c", b"2"), producer=(7, 2, 43))
    before = next(batches(log))[0]
    seal(log)
    compacted(log)
    header, kept = next(batches(log))
    assert [record.timestamp for record in kept] == [NOW + 5, NOW + 6]
    assert header.max_timestamp == NOW + 6, "the largest timestamp is that of what is left"
    assert header.record_count == 2
    same = (0, 2, 3, 5, 6, 7, 9, 10, 11)
    assert [header[field] for field in same] == [before[field] for field in same]


def test_a_batch_that_keeps_all_its_records_keeps_its_bytes() -> None:
    log = log_of()
    put(log, (b"a", b"1"), (b"b", b"1"), codec=4)
    put(log, (b"c", b"1"))
    seal(log)
    before = log.disk.content(log.segments[0].files.path(LOG))  # type: ignore[attr-defined]
    compacted(log)
    assert log.disk.content(log.segments[0].files.path(LOG)) == before  # type: ignore[attr-defined]


def test_records_behind_the_end_of_a_full_key_map_stay_and_go_the_next_time() -> None:
    log = log_of(ONE)
    for n in range(40):
        put(log, (b"k%d" % (n % 20), b"%d" % n))
    put(log, *[(b"k%d" % n, b"last") for n in range(20)])
    seal(log)
    small = replace(LIMITS, map_bytes=24 * 13)
    done = compacted(log, limits=small)
    assert 0 < done.clean_to < 20, "the map holds a dozen keys"
    assert [offset for offset, _, _ in values(log)] == list(range(60))
    cleaned_to, rounds = done.clean_to, 0
    while cleaned_to < 60:
        cleaned_to = compacted(log, cleaned_to, limits=small).clean_to
        rounds += 1
    assert rounds > 2
    assert values(log) == [(40 + n, b"k%d" % n, b"last") for n in range(20)]


def test_records_without_a_key_go() -> None:
    log = log_of()
    put(log, (None, b"from before the topic was compacted"), (b"a", b"1"))
    seal(log)
    compacted(log)
    assert values(log) == [(1, b"a", b"1")]


def test_the_active_segment_is_left_alone() -> None:
    log = log_of()
    put(log, (b"a", b"1"))
    seal(log)
    put(log, (b"a", b"2"), (b"a", b"3"))
    compacted(log)
    assert values(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_long_keys_are_distinguished() -> None:
    log = log_of(replace(ONE, segment_bytes=1 << 22))
    long = b"x" * 5000
    keys = [long, long + b"y", b"y" + long, long[:512], long[:513], b"\0", b"\0\0", b""]
    for turn in range(3):
        for key in keys:
            put(log, (key, b"%d" % turn))
    seal(log)
    compacted(log)
    assert [(key, value) for _, key, value in values(log)] == [(key, b"2") for key in keys]


def test_a_damaged_batch_is_never_made_to_look_whole() -> None:
    log = log_of(ONE)
    put(log, (b"a", b"1"), (b"b", b"value"))
    put(log, (b"a", b"2"))
    seal(log)
    disk, path = log.disk, log.segments[0].files.path(LOG)
    assert isinstance(disk, MemoryDisk)
    content = bytearray(disk.content(path))
    content[content.index(b"value")] ^= 1
    disk.corrupt(path, bytes(content))
    job = job_for(log, planned(log), LIMITS, NOW)
    *_, last = compact(job, disk)
    assert isinstance(last, Failed)
    assert "offset 0" in last.reason
    assert not [name for name in disk.list_folder(log.folder) if name.endswith(".cleaned")]


# --------------------------------------------------------------------------------- tombstones


def test_a_tombstone_stays_its_time_from_the_first_compaction_on() -> None:
    log = log_of()
    put(log, (b"a", b"1"), (b"b", b"1"), timestamp=NOW - 10)
    put(log, (b"a", None), (b"c", b"1"), timestamp=NOW - 10)
    seal(log)
    compacted(log, now_ms=NOW)
    assert values(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    [(header, kept)] = [item for item in batches(log) if item[0][0] == 2]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + 1000, "now and delete.retention.ms"
    assert [record.timestamp for record in kept] == [NOW - 10, NOW - 9]
    assert header.max_timestamp == NOW - 9
    compacted(log, 4, now_ms=NOW + 999)
    assert [header for header, _ in batches(log) if header.base_offset == 2] == [header]
    compacted(log, 4, now_ms=NOW + 1000)
    assert values(log) == [(1, b"b", b"1"), (3, b"c", b"1")]


def test_a_batch_with_the_brokers_time_keeps_it_beside_a_tombstone() -> None:
    log = log_of()
    data = encode_batch([Record(0, 5, b"a", b"1"), Record(1, 6, b"a", None)])
    stamp_append_time(data, memoryview(data), 0, len(data), NOW)
    append(log, data)
    seal(log)
    compacted(log)
    [(header, [record])] = [*batches(log)]
    assert header.attributes & LOG_APPEND_TIME
    assert (record.offset, record.timestamp, record.value) == (1, NOW, None)


# ------------------------------------------------------------------- producers and transactions


def test_the_last_batch_of_an_active_producer_stays_as_a_header() -> None:
    log = log_of()
    put(log, (b"a", b"1"), producer=(7, 0, 0))
    put(log, (b"a", b"2"), (b"b", b"1"), producer=(7, 0, 1), codec=4)
    put(log, (b"a", b"3"), (b"b", b"2"))
    seal(log)
    compacted(log)
    first, second = batches(log)
    assert first[1] == []
    assert (first[0][0], first[0][6], first[0][9:13]) == (1, 1, (7, 0, 1, 0))
    assert first[0][5] & CODEC_MASK == 0
    assert [record.offset for record in second[1]] == [3, 4]
    # Who starts again without a snapshot still knows the sequence.
    disk = log.disk
    assert isinstance(disk, MemoryDisk)
    for name in disk.list_folder(log.folder):
        if name.endswith(".snapshot"):
            disk.remove(f"{log.folder}/{name}")
    disk.kill()
    again = reopened(disk, COMPACT)
    assert again.producers.producers[7].expected == 3


def test_the_last_offset_of_the_compacted_part_stays() -> None:
    log = log_of()
    put(log, (b"a", b"1"))
    put(log, (None, b"no key"))
    seal(log)
    compacted(log)
    assert [(header.base_offset, header.record_count) for header, _ in batches(log)] == [
        (0, 1),
        (1, 0),
    ]


def test_aborted_records_go_and_do_not_count() -> None:
    log = log_of()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    put(log, (b"b", b"committed"), producer=(8, 0, 0), transactional=True)
    mark(log, 7, 0, commit=False)
    mark(log, 8, 0, commit=True)
    seal(log)
    compacted(log)
    assert values(log) == [(0, b"a", b"1"), (3, b"b", b"committed")]
    assert log.transactions.between(0, 10) == [(7, 2)], "its last batch is still there, empty"


def test_a_transaction_that_is_open_is_not_compacted() -> None:
    log = log_of()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"open"), producer=(7, 0, 0), transactional=True)
    log.roll()
    put(log, (b"a", b"2"))
    seal(log)
    assert planned(log).end == 0
    mark(log, 7, 0, commit=True)
    seal(log)
    assert planned(log).end == 4


def test_a_marker_goes_after_its_data_and_its_time() -> None:
    log = log_of()
    put(log, (b"a", b"1"), producer=(7, 0, 0), transactional=True)
    mark(log, 7, 0, commit=True)
    put(log, (b"a", b"2"), producer=(7, 0, 1), transactional=True)
    mark(log, 7, 0, commit=True)
    put(log, (b"b", b"1"))
    seal(log)

    def markers() -> list[tuple[int, bool]]:
        return [
            (header.base_offset, bool(header.attributes & DELETE_HORIZON))
            for header, _ in batches(log)
            if header.attributes & CONTROL
        ]

    # The walk meets the data before it drops it, so the first marker has no horizon yet.
    compacted(log)
    assert markers() == [(1, False), (3, False)]
    assert values(log) == [(2, b"a", b"2"), (4, b"b", b"1")]
    compacted(log, 5, now_ms=NOW)
    assert markers() == [(1, True), (3, False)]
    compacted(log, 5, now_ms=NOW + 999)
    assert markers() == [(1, True), (3, False)]
    compacted(log, 5, now_ms=NOW + 1000)
    assert markers() == [(3, False)]


def test_the_last_marker_of_an_active_producer_keeps_its_epoch() -> None:
    log = log_of()
    mark(log, 7, 5, commit=False)
    put(log, (b"a", b"1"))
    seal(log)
    compacted(log)
    compacted(log, 2, now_ms=NOW + 1000)
    compacted(log, 2, now_ms=NOW + 5000)
    kept = [header for header, _ in batches(log) if header.attributes & CONTROL]
    assert [
        (header.base_offset, header.producer_epoch, header.record_count) for header in kept
    ] == [(0, 5, 0)]


def test_the_index_of_aborted_transactions_is_right_after_a_restart() -> None:
    log = log_of()
    put(log, (b"a", b"1"), producer=(7, 0, 0), transactional=True)
    mark(log, 7, 0, commit=False)
    put(log, (b"b", b"x"), producer=(7, 0, 1), transactional=True)
    mark(log, 7, 0, commit=False)
    put(log, (b"c", b"1"))
    seal(log)
    compacted(log)
    known = log.transactions.between(0, 10)
    assert known == [(7, 0), (7, 2)]
    compacted(log, 5)
    assert log.transactions.between(0, 10) == [(7, 2)], "the first one's batches were gone"
    disk = log.disk
    assert isinstance(disk, MemoryDisk)
    log.close()
    disk.kill()
    assert reopened(disk, COMPACT).transactions.between(0, 10) == [(7, 2)]


# ----------------------------------------------------------------------------------- segments


def test_small_neighbours_become_one_segment() -> None:
    log = log_of(replace(COMPACT, segment_bytes=1200))
    for n in range(60):
        put(log, (b"k%d" % n, b"x" * 40))
        if n % 5 == 4:
            log.roll()
    seal(log)
    count = len(log.segments)
    compacted(log)
    assert len(log.segments) < count
    assert all(segment.size <= 1200 for segment in log.segments)
    assert len(values(log)) == 60


def test_offsets_of_one_segment_fit_into_its_index() -> None:
    log = log_of()
    put(log, (b"a", b"1"))
    log.roll()
    data = encode_batch([Record(0, NOW, b"b", b"1")], base_offset=2**31 + 5)
    log.append_replica(memoryview(data), 0, len(data), NOW)
    seal(log)
    compacted(log)
    assert [segment.base_offset for segment in log.segments][:2] == [0, 2**31 + 5]
    assert values(log) == [(0, b"a", b"1"), (2**31 + 5, b"b", b"1")]


def test_every_offset_and_time_finds_what_comes_next() -> None:
    log = log_of()
    rnd = random.Random(4)
    for n in range(120):
        put(log, (b"k%d" % rnd.randint(0, 40), b"x" * rnd.randint(0, 30)), timestamp=NOW + 10 * n)
    seal(log)
    put(log, (b"end", b""), timestamp=NOW + 5000)
    compacted(log)
    left = records(log)
    for offset in range(log.end_offset):
        piece = log.read(offset, 1, log.end_offset, True)
        assert piece is not None
        header = read_header(log.disk.pread(piece.file.fd, piece.length, piece.position), 0)
        assert header.base_offset <= min(r.offset for r in left if r.offset >= offset)
        assert header.last_offset >= offset
    for timestamp in range(NOW, NOW + 1300, 7):
        found = log.find_timestamp(timestamp)
        assert found is not None
        assert found.offset == next(r.offset for r in left if r.timestamp >= timestamp)


# ---------------------------------------------------------------------------------- the model


class Model:
    """Compaction as its rules say, over a plain list of batches."""

    def __init__(self, log: Log, cleaned_to: int, now_ms: int) -> None:
        plan = planned(log, cleaned_to, now_ms)
        self.held = [*batches(log)]
        self.now_ms = now_ms
        self.end = plan.end
        aborted = [*log.transactions.aborted_before(plan.end)]
        last = {}
        self.aborted_batches = set()
        for header, held in self.held:
            if header.attributes & TRANSACTIONAL and not header.attributes & CONTROL:
                for producer_id, first, marker, _ in aborted:
                    if header.producer_id == producer_id and first <= header.base_offset < marker:
                        self.aborted_batches.add(header.base_offset)
            if header.base_offset in self.aborted_batches or header.attributes & CONTROL:
                continue
            for record in held:
                if cleaned_to <= record.offset < plan.end:
                    last[record.key] = record.offset
        self.last = last

    def survivors(self) -> list[Record]:
        left = []
        for header, held in self.held:
            if header.attributes & CONTROL:
                continue
            passed = header.attributes & DELETE_HORIZON and header.base_timestamp <= self.now_ms
            for record in held:
                if record.offset >= self.end:
                    left.append(record)
                elif header.base_offset in self.aborted_batches or record.key is None:
                    continue
                elif record.offset >= self.last.get(record.key, -1) and not (
                    passed and record.value is None
                ):
                    left.append(record)
        return left


def random_history(log: Log, rnd: random.Random, turns: int, sequences: dict[int, int]) -> None:
    open_now: list[int] = []
    for n in range(turns):
        kind = rnd.random()
        producer, transactional = None, False
        if kind < 0.15:
            log.roll()
            continue
        if kind < 0.35 and open_now:
            mark(log, open_now.pop(rnd.randrange(len(open_now))), 0, commit=rnd.random() < 0.5)
            continue
        if kind < 0.8:
            producer_id = rnd.randint(1, 5)
            transactional = producer_id > 1
            if transactional and producer_id not in open_now:
                open_now.append(producer_id)
            producer = (producer_id, 0, sequences.get(producer_id, 0))
        count = rnd.randint(1, 6)
        held = [
            (b"k%d" % rnd.randint(0, 25), None if rnd.random() < 0.2 else b"%d-%d" % (n, i))
            for i in range(count)
        ]
        if producer is not None:
            sequences[producer[0]] = producer[2] + count
        put(
            log, *held, codec=rnd.choice([0, 0, 1, 2, 3, 4]), timestamp=NOW + rnd.randint(0, 500),
            producer=producer, transactional=transactional,
        )  # fmt: skip
    for producer_id in open_now:
        mark(log, producer_id, 0, commit=rnd.random() < 0.5)


def aborted_in(log: Log) -> list[tuple[int, ...]]:
    return [tuple(row) for row in log.transactions.aborted_before(log.end_offset)]


@pytest.mark.parametrize("seed", range(25))
def test_random_histories_keep_what_the_rules_say(seed: int) -> None:
    rnd = random.Random(seed)
    disk = MemoryDisk()
    settings = replace(COMPACT, segment_bytes=rnd.choice([400, 1500, 1 << 20]))
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, settings)
    cleaned_to, now_ms = 0, NOW + 1000
    sequences: dict[int, int] = {}
    for _ in range(4):
        random_history(log, rnd, rnd.randint(5, 60), sequences)
        seal(log)
        model = Model(log, cleaned_to, now_ms)
        cleaned_to = compacted(log, cleaned_to, now_ms).clean_to
        assert records(log) == model.survivors()
        before, aborted = [*batches(log)], aborted_in(log)
        expected = {pid: p.expected for pid, p in log.producers.producers.items()}
        clean = rnd.random() < 0.5
        if clean:
            directory.close()
        disk.kill()
        directory = open_directory(disk)
        log = directory.get(ORDERS, settings)
        assert [*batches(log)] == before
        assert {pid: p.expected for pid, p in log.producers.producers.items()} == expected
        if clean:
            assert aborted_in(log) == aborted
        else:  # the scan may find or miss transactions of which nothing but the marker is left
            markers = {header.base_offset for header, _ in before if header.attributes & CONTROL}
            assert {row[2] for row in aborted_in(log)} <= markers
        now_ms += rnd.choice([1, 600, 1500])


def test_a_map_that_is_too_small_only_takes_longer() -> None:
    rnd = random.Random(9)
    log = log_of(ONE)
    random_history(log, rnd, 150, {})
    seal(log)
    whole = Model(log, 0, NOW).survivors()
    cleaned_to = 0
    while cleaned_to < planned(log).end:
        limits = CompactionLimits(24 * 7, 0.9, 1e18, 1 << 26)
        done = compacted(log, cleaned_to, limits=limits)
        assert done.clean_to > cleaned_to
        cleaned_to = done.clean_to
    assert records(log) == whole


def test_control_batches_survive_compaction() -> None:
    log = log_of()
    put(log, (b"a", b"1"), producer=(7, 3, 0), transactional=True)
    mark(log, 7, 3, commit=True)
    seal(log)
    compacted(log)
    compacted(log, 2)
    found = []
    for segment in log.segments:
        for position, header in segment.walk(0):
            if header.attributes & CONTROL:
                found.append(decode_marker(segment.read_batch(position, header)))
    assert [marker.commit for marker in found if marker] == [True]
