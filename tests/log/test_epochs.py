from headrace.log.epochs import EpochCache


def cache() -> EpochCache:
    epochs = EpochCache()
    epochs.assign(1, 0)
    epochs.assign(3, 10)
    epochs.assign(7, 25)
    return epochs


def test_an_older_epoch_is_never_assigned() -> None:
    epochs = cache()
    epochs.assign(5, 40)
    epochs.assign(7, 40)
    assert epochs.entries == ((1, 0), (3, 10), (7, 25))


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    epochs = cache()
    epochs.assign(8, 25)
    assert epochs.entries == ((1, 0), (3, 10), (8, 25))


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    epochs = cache()
    assert epochs.end_offset(1, 40) == (1, 10)
    assert epochs.end_offset(2, 40) == (1, 10)
    assert epochs.end_offset(3, 40) == (3, 25)
    assert epochs.end_offset(7, 40) == (7, 40)


def test_an_epoch_from_the_future_is_unknown_and_one_from_the_past_ended_at_the_start() -> None:
    epochs = cache()
    assert epochs.end_offset(8, 40) == (-1, -1)
    assert epochs.end_offset(0, 40) == (0, 0)
    assert epochs.end_offset(-1, 40) == (-1, -1)
    assert EpochCache().end_offset(0, 40) == (-1, -1)


def test_every_offset_has_the_epoch_that_wrote_it() -> None:
    epochs = cache()
    assert [epochs.epoch_at(o) for o in (0, 9, 10, 24, 25, 99)] == [1, 1, 3, 3, 7, 7]
    assert EpochCache().epoch_at(0) == -1


def test_cutting_the_end_forgets_epochs_that_begin_there() -> None:
    epochs = cache()
    epochs.dirty = False
    epochs.truncate_end(26)
    assert not epochs.dirty
    epochs.truncate_end(25)
    assert epochs.entries == ((1, 0), (3, 10))
    assert epochs.dirty


def test_cutting_the_start_keeps_the_epoch_that_covers_it() -> None:
    epochs = cache()
    for start, kept in ((12, [(3, 12), (7, 25)]), (25, [(7, 25)])):
        epochs.truncate_start(start)
        assert list(epochs.entries) == kept
    epochs.clear()
    assert epochs.latest == -1
