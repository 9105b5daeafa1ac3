"""Handlers of `/connectors/N/dead-letters`, which Kafka Connect does not have."""

from headrace.connect.errors import bad_request
from headrace.connect.letter_orders import MOST_RECORDS, LetterOrder, LetterView
from headrace.connect.rest.call import ConnectCall
from headrace.service.responses import HttpAnswer

USUAL_RECORDS = 10
FIELDS = frozenset({"where", "limit", "dry_run"})


async def list_groups(call: ConnectCall) -> object:
    """The dead letters that wait, by error."""
    return await call.worker.letters.view(call.name, _view(call, "groups", MOST_RECORDS))


async def list_records(call: ConnectCall) -> object:
    """Some of the dead letters that wait."""
    return await call.worker.letters.view(call.name, _view(call, "records", USUAL_RECORDS))


async def replay(call: ConnectCall) -> object:
    """Run dead letters through their connector again."""
    return await _run(call, "replay")


async def discard(call: ConnectCall) -> object:
    """Let dead letters wait no longer."""
    return await _run(call, "discard")


async def get_run(call: ConnectCall) -> object:
    """The newest replay or discard."""
    return await call.worker.letters.newest_run(call.name)


async def stop_run(call: ConnectCall) -> object:
    """End a replay or discard after the letters that it is writing."""
    await call.worker.letters.stop(call.name)
    return HttpAnswer(204)


async def _run(call: ConnectCall, action: str) -> HttpAnswer:
    order = _order(call, action)
    found = await call.worker.letters.run(call.name, order)
    return HttpAnswer(200 if order.dry_run else 202, found)


def _view(call: ConnectCall, what: str, usual: int) -> LetterView:
    text = call.text("limit", str(usual))
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= MOST_RECORDS:
        raise bad_request(f"The parameter limit must be a number from 1 to {MOST_RECORDS}")
    return LetterView(what, call.text("where", ""), int(text))


def _order(call: ConnectCall, action: str) -> LetterOrder:
    given = call.fields()
    if unknown := sorted(given.keys() - FIELDS):
        raise bad_request(f"Unknown field {unknown[0]}; expected where, limit and dry_run")
    where, limit, dry_run = given.get("where"), given.get("limit"), given.get("dry_run", False)
    if where is not None and not isinstance(where, str):
        raise bad_request("where must be a text: a condition in Spark SQL")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise bad_request("limit must be a whole number of at least 1")
    if not isinstance(dry_run, bool):
        raise bad_request("dry_run must be true or false")
    return LetterOrder(action, where or "", limit, dry_run)
