"""Where a follower's log and its leader's part ways (KIP-101, KIP-279). Pure.

The follower asks where its latest epoch ended in the leader's log. The leader answers with the
largest epoch up to that one which it knows, and its end. What the follower has beyond is not the
leader's, and goes; if it does not know the leader's epoch either, it asks once more, for an older
one, until they agree.
"""

from typing import NamedTuple

from headrace.log.epochs import NO_EPOCH, EpochCache
from headrace.types import Epoch, Offset


class TruncationStep(NamedTuple):
    """Cut the log to `end`; then ask about `epoch`, or begin to fetch if that is None."""

    end: Offset
    epoch: Epoch | None


def next_step(
    epochs: EpochCache, log_end: Offset, high_watermark: Offset, answer: tuple[Epoch, Offset]
) -> TruncationStep:
    """What follows from the leader's answer (epoch, its end)."""
    epoch, end = answer
    if epoch == NO_EPOCH:
        # The leader knows nothing of that time: what is committed is all that can be relied on.
        return TruncationStep(min(high_watermark, log_end), None)
    own_epoch, own_end = epochs.end_offset(min(epoch, epochs.latest), log_end)
    if own_epoch == epoch:
        return TruncationStep(min(end, own_end), None)
    if own_epoch == NO_EPOCH or own_end <= 0:
        return TruncationStep(min(high_watermark, log_end), None)
    return TruncationStep(min(end, own_end), own_epoch)
