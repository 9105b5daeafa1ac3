"""How slots are shared out."""

from collections.abc import Mapping, Set

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.sharing.slots import SLOTS, share, slot_of

ALL = frozenset(range(SLOTS))
NOTHING: frozenset[int] = frozenset()


def settled(
    held: Mapping[str, Set[int]], occupied: Set[int] = NOTHING
) -> dict[str, frozenset[int]]:
    """The shares after all members have released what is assigned to others."""
    first = share(held, occupied)
    return share({member: held[member] & slots for member, slots in first.items()}, occupied)


def test_a_connector_has_the_slot_of_a_record_with_its_name() -> None:
    # kafka-console-producer with the key `orders` and 64 partitions.
    assert slot_of("orders") == slot_of("orders")
    assert {slot_of(f"connector-{n}") for n in range(2000)} == ALL


def test_one_worker_has_all_slots_at_once() -> None:
    assert share({"a": NOTHING}, NOTHING) == {"a": ALL}


def test_a_slot_that_moves_is_nobodys_until_it_is_released() -> None:
    first = share({"a": ALL, "b": NOTHING}, NOTHING)
    assert len(first["a"]) == 32
    assert first["b"] == NOTHING
    second = share({"a": first["a"], "b": NOTHING}, NOTHING)
    assert second["a"] == first["a"]
    assert second["b"] == ALL - first["a"]


def test_the_slots_of_a_worker_that_is_gone_are_shared_without_other_moves() -> None:
    three = settled({"a": ALL, "b": NOTHING, "c": NOTHING})
    two = share({"a": three["a"], "b": three["b"]}, NOTHING)
    assert two["a"] >= three["a"]
    assert two["b"] >= three["b"]
    assert two["a"] | two["b"] == ALL


def test_slots_with_connectors_are_shared_evenly_although_they_are_few() -> None:
    found = settled({"a": ALL, "b": NOTHING}, {1, 2, 3, 4})
    assert len(found["a"] & {1, 2, 3, 4}) == 2
    assert len(found["b"] & {1, 2, 3, 4}) == 2


def test_a_slot_that_two_workers_hold_is_taken_from_both_first() -> None:
    found = share({"a": {7}, "b": {7}}, NOTHING)
    assert 7 not in found["a"] | found["b"]


@given(
    st.dictionaries(st.sampled_from("abcde"), st.frozensets(st.integers(0, SLOTS - 1)), min_size=1),
    st.frozensets(st.integers(0, SLOTS - 1)),
)
def test_every_slot_ends_with_one_owner_in_equal_shares_and_a_second_round_moves_none(
    held: dict[str, frozenset[int]], occupied: frozenset[int]
) -> None:
    given_once = share(held, occupied)
    for member, slots in given_once.items():
        for other in held.keys() - {member}:
            assert not slots & held[other], "a slot was given away before it was released"
    found = settled(held, occupied)
    assert sorted(slot for slots in found.values() for slot in slots) == list(range(SLOTS))
    for layer in (occupied, ALL - occupied):
        counts = [len(slots & layer) for slots in found.values()]
        assert max(counts) - min(counts) <= 1
    assert share(found, occupied) == found
