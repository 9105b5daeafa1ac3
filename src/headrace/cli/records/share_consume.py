"""`headrace consume --share`: records as a member of a share group, with acknowledgements.

Records are taken a few at a time, and what was shown is acknowledged before more are taken.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.cli import client, output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.records.consume import Acknowledge

if TYPE_CHECKING:
    from confluent_kafka import AcknowledgeType, Message, ShareConsumer

    from headrace.cli.client import ClusterOptions

POLL_S = 0.25
SILENCE_S = 5.0
"""Without --follow it stops when there were no records for this long."""
COMMIT_TIMEOUT_S = 30.0
MAX_RECORDS = 100


_ANSWERS = {
    "a": Acknowledge.ACCEPT,
    "r": Acknowledge.RELEASE,
    "x": Acknowledge.REJECT,
}


def read_queue(
    cluster: "ClusterOptions",
    topic: str,
    group: str,
    how: Acknowledge,
    count: int | None,
    follow: bool,
    write: Callable[["Message"], bytes],
) -> int:
    """Show records that the group delivers, and acknowledge them; how many there were."""
    # Ask for one record at a time: those of a batch are locked while the user decides.
    most = 1 if how is Acknowledge.ASK else min(count or MAX_RECORDS, MAX_RECORDS)
    reader = client.share_consumer(cluster, group, most)
    shown = 0
    try:
        reader.subscribe([topic])
        heard = time.monotonic()
        while count is None or shown < count:
            messages = [one for one in reader.poll(POLL_S) if _is_record(cluster, one)]
            if messages:
                left = None if count is None else count - shown
                shown += _show(reader, messages, left, how, write)
                heard = time.monotonic()
            elif not follow and time.monotonic() - heard > SILENCE_S:
                break
    except KeyboardInterrupt:
        # With --follow this is the normal end.
        if not follow:
            raise
    finally:
        reader.close()
    return shown


def _is_record(cluster: "ClusterOptions", message: "Message") -> bool:
    problem = message.error()
    if problem is None:
        return True
    if problem.fatal() or not problem.retriable():
        raise client.failure(cluster, problem, "the share group")
    return False


def _show(
    reader: "ShareConsumer",
    messages: "list[Message]",
    left: int | None,
    how: Acknowledge,
    write: Callable[["Message"], bytes],
) -> int:
    """Show and acknowledge records; those beyond the limit are released."""
    from confluent_kafka import AcknowledgeType

    out = sys.stdout.buffer
    wanted = messages if left is None else messages[:left]
    for message in wanted:
        out.write(write(message))
        out.flush()
        reader.acknowledge(message, _type(_ask(message) if how is Acknowledge.ASK else how))
    for message in messages[len(wanted) :]:
        reader.acknowledge(message, AcknowledgeType.RELEASE)
    for place, error in reader.commit_sync(COMMIT_TIMEOUT_S).items():
        if error is not None:
            raise Failure(f"{place.topic} partition {place.partition}: not acknowledged: {error}")
    return len(wanted)


def _type(how: Acknowledge) -> "AcknowledgeType":
    from confluent_kafka import AcknowledgeType

    return {
        Acknowledge.ACCEPT: AcknowledgeType.ACCEPT,
        Acknowledge.RELEASE: AcknowledgeType.RELEASE,
        Acknowledge.REJECT: AcknowledgeType.REJECT,
    }[how]


def _ask(message: "Message") -> Acknowledge:
    """Ask what to do with a record; the end of the input releases it."""
    while True:
        where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
        count = message.delivery_count()
        output.note(f"{where}, delivery {count}: [a]ccept, [r]elease or reject [x]?")
        line = sys.stdin.readline()
        if not line:
            return Acknowledge.RELEASE
        if (answer := line.strip().lower()[:1]) in _ANSWERS:
            return _ANSWERS[answer]


def check_options(start: str, partitions: list[int] | None) -> None:
    """A Failure if options are given that a share group decides itself."""
    if start != "beginning" or partitions:
        raise bad_usage(
            "--share cannot be used with --from or --partition",
            "A share group keeps its own position; `headrace groups reset-offsets` or the config "
            "share.auto.offset.reset changes where it begins.",
        )
