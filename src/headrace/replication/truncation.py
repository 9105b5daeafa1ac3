"""Finds where a follower's log diverges from its leader's (KIP-101, KIP-279). Pure.

The follower asks where its latest epoch ended in the leader's log. The leader answers with its
largest epoch not above that one, and its end offset. The follower truncates its log there. If the
follower does not have that epoch, it asks again for an older one, until they agree.
"""

from typing import NamedTuple

from headrace.log.epochs import NO_EPOCH, EpochCache
from headrace.types import Epoch, Offset


class TruncationStep(NamedTuple):
    """Truncate the log to `end`; then ask about `epoch`, or begin to fetch if it is None."""

    end: Offset
    epoch: Epoch | None


def next_step(
    epochs: EpochCache, log_end: Offset, high_watermark: Offset, answer: tuple[Epoch, Offset]
) -> TruncationStep:
    """The truncation for the leader's answer (epoch, its end)."""
    epoch, end = answer
    if epoch == NO_EPOCH:
        # The leader has no such epoch: keep only what is committed.
        return TruncationStep(min(high_watermark, log_end), None)
    own_epoch, own_end = epochs.end_offset(min(epoch, epochs.latest), log_end)
    if own_epoch == epoch:
        return TruncationStep(min(end, own_end), None)
    if own_epoch == NO_EPOCH or own_end <= 0:
        return TruncationStep(min(high_watermark, log_end), None)
    return TruncationStep(min(end, own_end), own_epoch)
