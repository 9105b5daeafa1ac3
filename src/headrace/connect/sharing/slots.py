"""Slots: connectors are shared out in 64 parts, which are partitions of a topic (pure functions).

The leader of the group calls `share` with the slots that each member holds. A slot moves in two
steps: it is first assigned to no member, and after its holder has released it, to the new owner.
"""

from collections.abc import Mapping, Set

from headrace.client.partitioner import partition_of

SLOTS = 64


def slot_of(connector: str) -> int:
    """The slot of a connector: the partition of a record with its name as the key."""
    return partition_of(connector.encode(), SLOTS)


def share(held: Mapping[str, Set[int]], occupied: Set[int]) -> dict[str, frozenset[int]]:
    """The slots of each member, as many for each as for the others, with the fewest moves.

    `held` has the slots that members hold now, `occupied` those with connectors. The result has no
    slot that another member still holds: it must be released first.
    """
    wanted: dict[str, set[int]] = {member: set() for member in held}
    if not held:
        return {}
    for layer in (occupied, frozenset(range(SLOTS)) - occupied):
        _share_layer(sorted(layer), held, wanted)
    return {
        member: frozenset(slot for slot in slots if _holders(slot, held) <= {member})
        for member, slots in wanted.items()
    }


def _share_layer(
    layer: list[int], held: Mapping[str, Set[int]], wanted: dict[str, set[int]]
) -> None:
    """Adds the slots of a layer to `wanted`."""
    each, larger = divmod(len(layer), len(held))
    # The larger shares are for members that hold more of the layer already, then for members that
    # have less of the layer before.
    order = sorted(held, key=lambda one: (-len(held[one] & set(layer)), len(wanted[one]), one))
    room = {member: each + (place < larger) for place, member in enumerate(order)}
    free: list[int] = []
    for slot in layer:
        holders = _holders(slot, held)
        if len(holders) == 1 and room[(holder := holders.pop())] > 0:
            wanted[holder].add(slot)
            room[holder] -= 1
        else:
            free.append(slot)
    for slot in free:
        member = max(order, key=lambda one: room[one])
        wanted[member].add(slot)
        room[member] -= 1


def _holders(slot: int, held: Mapping[str, Set[int]]) -> set[str]:
    return {member for member, slots in held.items() if slot in slots}
