"""Deliberate bugs that the checker and the simulator have to find.

Each replaces methods of the broker's classes. The simulator plants one in its own process
(`planted`); a broker process with bugs is started by `serve.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from headrace.coordination.outcome import Outcome, Token
from headrace.coordination.transaction_records import Transaction
from headrace.coordination.transactions import Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.log.producer_state import ProducerState
from headrace.wire.batch import Header, HeaderFields
from tests.bugs.coordinator_bugs import GROUP_BUGS, TRANSACTION_BUGS
from tests.bugs.replication_bugs import REPLICATION_BUGS
from tests.bugs.swaps import restore, swap


def _ignore_sequences() -> None:
    """Every batch is new, whatever its sequence: a retry is appended once more."""
    judge = ProducerState.check

    def careless(self: ProducerState, header: Header) -> int:
        try:
            judge(self, header)
        except KafkaError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
        return -1

    swap(ProducerState, "check", careless)


def _ignore_epochs() -> None:
    """Whoever has the producer id may write and end transactions, fenced or not."""
    find, end, judge = Transactions._of, Transactions.end, ProducerState.check

    def current(self: Transactions, name: str, who: Identity) -> Identity:
        one = self.ids.get(name)
        return who if one is None else replace(who, epoch=one.epoch)

    def find_any(self: Transactions, name: str, who: Identity) -> Transaction:
        return find(self, name, current(self, name, who))

    def end_any(
        self: Transactions,
        name: str,
        who: Identity,
        commit: bool,
        version: int,
        token: Token[Identity],
    ) -> Outcome:
        return end(self, name, current(self, name, who), commit, version, token)

    def judge_any(self: ProducerState, fields: HeaderFields) -> int:
        header = Header._make(fields)
        producer = self.producers.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            return -1
        return judge(self, fields)

    swap(Transactions, "_of", find_any)
    swap(Transactions, "end", end_any)
    swap(ProducerState, "check", judge_any)


def _show_open_transactions() -> None:
    """The last stable offset is the high watermark: readers see what may yet be aborted."""

    def everything(_self: Log, high_watermark: int) -> int:
        return high_watermark

    swap(Log, "last_stable_offset", everything)


BUGS: dict[str, Callable[[], None]] = {
    "sequence": _ignore_sequences,
    "epoch": _ignore_epochs,
    "stable": _show_open_transactions,
    **GROUP_BUGS,
    **TRANSACTION_BUGS,
    **REPLICATION_BUGS,
}


def plant(names: str) -> None:
    """Plant the bugs of a comma-separated list in this process."""
    for name in names.split(","):
        BUGS[name]()


@contextmanager
def planted(name: str) -> Iterator[None]:
    """One bug for a while, in this process."""
    BUGS[name]()
    try:
        yield
    finally:
        restore()
