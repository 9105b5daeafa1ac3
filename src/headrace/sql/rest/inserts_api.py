"""Rows of clients: `/inserts-stream`."""

import json
from collections.abc import AsyncGenerator
from decimal import Decimal

from headrace.service.responses import HttpStream
from headrace.sql.errors import BAD_REQUEST, StatementRefused, bad_request
from headrace.sql.execution.executor import StatementFailure
from headrace.sql.execution.persistent import writable
from headrace.sql.rest.call import SqlCall, statement_error
from headrace.sql.rest.queries_api import DELIMITED, JSON
from headrace.sql.sources import SqlSource

ROWS_AT_ONCE = 500


async def inserts_stream(call: SqlCall) -> HttpStream:
    """A line with the target, then a line a row; a line is answered for each row."""
    lines = [line for line in call.body.split(b"\n") if line.strip()]
    head = _parsed(lines[0]) if lines else None
    target = head.get("target") if isinstance(head, dict) else None
    if not isinstance(target, str):
        raise bad_request('The first line of the body must be an object such as {"target":"s"}')
    try:
        source = writable(call.engine.server, target.strip("`"))
        call.engine.server.check_ready()
    except StatementRefused as error:
        raise statement_error(StatementFailure(target, error)) from None
    accepted = call.headers.get(b"accept", b"").decode("latin-1")
    if JSON in accepted and DELIMITED not in accepted:
        return HttpStream(_array(call, source, lines[1:]), JSON)
    return HttpStream(_lines(call, source, lines[1:]), DELIMITED)


def _parsed(line: bytes) -> object:
    try:
        # All digits of decimals.
        found: object = json.loads(line, parse_float=Decimal)
        return found
    except ValueError:
        return None


async def _lines(
    call: SqlCall, source: SqlSource, lines: list[bytes]
) -> AsyncGenerator[bytes, None]:
    async for answers in _inserted(call, source, lines):
        yield "".join(f"{json.dumps(each)}\n" for each in answers).encode()


async def _array(
    call: SqlCall, source: SqlSource, lines: list[bytes]
) -> AsyncGenerator[bytes, None]:
    separator = "["
    async for answers in _inserted(call, source, lines):
        text = ",\n".join(json.dumps(each) for each in answers)
        yield (separator + text).encode()
        separator = ",\n"
    yield b"[]" if separator == "[" else b"]"


async def _inserted(
    call: SqlCall, source: SqlSource, lines: list[bytes]
) -> AsyncGenerator[list[dict[str, object]], None]:
    """The answers to rows. After the first error no more rows are inserted."""
    for start in range(0, len(lines), ROWS_AT_ONCE):
        rows = []
        problem: StatementRefused | None = None
        for line in lines[start : start + ROWS_AT_ONCE]:
            row = _parsed(line)
            if not isinstance(row, dict):
                problem = StatementRefused("A row must be a JSON object", BAD_REQUEST)
                break
            rows.append(row)
        good = 0
        try:
            await call.engine.inserter.insert(source, rows)
            good = len(rows)
        except StatementRefused:
            # One of them is wrong: one by one shows which.
            for row in rows:
                try:
                    await call.engine.inserter.insert(source, [row])
                except StatementRefused as error:
                    problem = error
                    break
                good += 1
        answers: list[dict[str, object]] = [
            {"status": "ok", "seq": start + number} for number in range(good)
        ]
        if problem is not None:
            answers.append(
                {
                    "status": "error",
                    "seq": start + good,
                    "error_code": problem.code,
                    "message": problem.message,
                }
            )
        yield answers
        if problem is not None:
            return
