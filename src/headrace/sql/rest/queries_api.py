"""Queries of clients: `/query`, `/query-stream` and `/close-query`."""

import json
from collections.abc import AsyncGenerator, Callable

from headrace.service.responses import HttpContent, HttpStream
from headrace.sql.errors import (
    BAD_STATEMENT,
    QUERY_ENDPOINT,
    SERVER_ERROR,
    StatementRefused,
    bad_request,
)
from headrace.sql.execution.entities import schema_text
from headrace.sql.execution.executor import StatementFailure
from headrace.sql.execution.printing import TopicPrinter
from headrace.sql.execution.querying import SelectResult
from headrace.sql.execution.session import Session
from headrace.sql.language import statements as sql
from headrace.sql.language.errors import SqlError
from headrace.sql.rest.call import SqlCall, statement_error
from headrace.sql.rest.row_text import row_encoder
from headrace.sql.type_names import type_text

DELIMITED = "application/vnd.ksqlapi.delimited.v1"
KSQL_JSON = "application/vnd.ksql.v1+json"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
OFFSETS_HEADER = "x-headrace-offsets"

Chunks = AsyncGenerator[bytes, None]


async def query(call: SqlCall) -> HttpStream | HttpContent:
    """The older form: an array of objects, one a row."""
    return await _answer(call, ("ksql", "sql"), KSQL_JSON)


async def query_stream(call: SqlCall) -> HttpStream | HttpContent:
    """A line a row, or one array, as the header `Accept` asks for."""
    accepted = call.headers.get(b"accept", b"").decode("latin-1")
    media_type = DELIMITED
    if DELIMITED not in accepted:
        if KSQL_JSON in accepted:
            media_type = KSQL_JSON
        elif JSON in accepted:
            media_type = JSON
    return await _answer(call, ("sql", "ksql"), media_type)


async def close_query(call: SqlCall) -> object:
    """Ends a push query of another connection."""
    query_id = call.text_field(call.fields(), "queryId")
    if not call.engine.queries.close(query_id):
        raise bad_request(f"No query with id {query_id}")
    return {}


async def _answer(
    call: SqlCall, names: tuple[str, str], media_type: str
) -> HttpStream | HttpContent:
    fields = call.fields()
    text = call.text_field(fields, *names)
    session = call.session(fields)
    found = None if session.variables else call.engine.queries.quick(text)
    if found is not None:
        return await _content(found, media_type)
    statements = call.parse(text, session)
    # SET and DEFINE before the query hold for it.
    for each in statements[:-1]:
        if not isinstance(each, sql.SetProperty | sql.UnsetProperty | sql.DefineVariable):
            raise bad_request("The request must have one SELECT or PRINT", QUERY_ENDPOINT)
        await call.engine.executor.execute(each, session)
    statement = statements[-1]
    try:
        return await _started(call, statement, session, media_type, text)
    except StatementRefused as error:
        raise statement_error(StatementFailure(statement.text, error)) from None
    except SqlError as error:
        refused = StatementRefused(str(error))
        raise statement_error(StatementFailure(statement.text, refused)) from None


async def _started(
    call: SqlCall, statement: sql.Statement, session: Session, media_type: str, text: str
) -> HttpStream | HttpContent:
    engine = call.engine
    if isinstance(statement, sql.PrintTopic):
        printer = TopicPrinter(engine.server, statement)
        await printer.start()
        return HttpStream(_printed(printer), TEXT)
    if not isinstance(statement, sql.SelectStatement):
        raise StatementRefused(
            "This endpoint has SELECT and PRINT only; send other statements to /ksql",
            BAD_STATEMENT,
        )
    result = await engine.queries.run(statement, session, "" if session.variables else text)
    if not result.is_push:
        return await _content(result, media_type)
    form = _FORMS[media_type]

    async def chunks() -> Chunks:
        try:
            async for chunk in form(result):
                yield chunk
        finally:
            await engine.queries.end(result)

    return HttpStream(chunks(), media_type)


async def _content(result: SelectResult, media_type: str) -> HttpContent:
    """The whole answer of a pull query, and up to which offsets it is."""
    body = b"".join([chunk async for chunk in _FORMS[media_type](result)])
    headers = {}
    if result.offsets:
        headers[OFFSETS_HEADER] = json.dumps(result.offsets, separators=(",", ":"))
    return HttpContent(body, media_type, headers)


async def _printed(printer: TopicPrinter) -> Chunks:
    async for lines in printer.lines():
        yield "".join(f"{line}\n" for line in lines).encode()


def _metadata(result: SelectResult) -> dict[str, object]:
    return {
        "queryId": result.id,
        "columnNames": [each.name for each in result.columns],
        "columnTypes": [type_text(each.type) for each in result.columns],
    }


def _failure(error: StatementRefused) -> dict[str, object]:
    return {"@type": "generic_error", "error_code": SERVER_ERROR, "message": error.message}


async def _delimited(result: SelectResult) -> Chunks:
    encode = row_encoder(result.columns)
    yield json.dumps(_metadata(result)).encode() + b"\n"
    try:
        async for rows in result.batches():
            yield "".join(f"{encode(row)}\n" for row in rows).encode()
    except StatementRefused as error:
        yield json.dumps(_failure(error)).encode() + b"\n"


async def _array(result: SelectResult) -> Chunks:
    encode = row_encoder(result.columns)
    yield b"[" + json.dumps(_metadata(result)).encode()
    try:
        async for rows in result.batches():
            yield "".join(f",\n{encode(row)}" for row in rows).encode()
    except StatementRefused as error:
        yield b",\n" + json.dumps(_failure(error)).encode()
    yield b"]\n"


async def _objects(result: SelectResult) -> Chunks:
    encode = row_encoder(result.columns)
    schema = schema_text(result.columns, result.keys)
    yield b"[" + json.dumps({"header": {"queryId": result.id, "schema": schema}}).encode()
    left = result.limit
    try:
        async for rows in result.batches():
            if left is not None:
                left -= len(rows)
            yield "".join(f',\n{{"row":{{"columns":{encode(row)}}}}}' for row in rows).encode()
        if result.is_push:
            message = "Limit Reached" if left == 0 else "Query Completed"
            yield b",\n" + json.dumps({"finalMessage": message}).encode()
    except StatementRefused as error:
        yield b",\n" + json.dumps({"errorMessage": _failure(error)}).encode()
    yield b"]\n"


_FORMS: dict[str, Callable[[SelectResult], Chunks]] = {
    DELIMITED: _delimited,
    JSON: _array,
    KSQL_JSON: _objects,
}
