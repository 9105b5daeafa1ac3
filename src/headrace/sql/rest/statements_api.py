"""Statements and their status: `/ksql`, `/ksql/terminate`, `/status`, `/is_valid_property`."""

import re

from headrace.service.errors import HttpError
from headrace.sql.commands.records import REPLAY, SOURCE, key_of
from headrace.sql.errors import NOT_FOUND, StatementRefused, bad_request
from headrace.sql.execution.changing import terminate
from headrace.sql.execution.executor import StatementFailure
from headrace.sql.execution.session import check_property
from headrace.sql.execution.topics import remove_topic
from headrace.sql.language.statements import TerminateQuery
from headrace.sql.rest.call import SqlCall, statement_error


async def run(call: SqlCall) -> object:
    """The results of statements, in order."""
    fields = call.fields()
    text = call.text_field(fields, "ksql", "sql")
    session = call.session(fields)
    # Nothing is carried out if a statement cannot be read.
    statements = call.parse(text, session)
    sequence = fields.get("commandSequenceNumber")
    if isinstance(sequence, int) and sequence >= 0:
        # All that this server has read back has been carried out.
        await call.engine.server.commands.refresh()
    try:
        return await call.engine.executor.run(statements, session)
    except StatementFailure as failure:
        raise statement_error(failure) from None


async def status(call: SqlCall) -> object:
    """The status of one of the last statements."""
    command = f"{call.path['type']}/{call.path['entity']}/{call.path['action']}"
    found = call.engine.server.statuses.get(command)
    if found is None:
        raise HttpError(
            404, "Command not found", code=NOT_FOUND, details={"@type": "generic_error"}
        )
    return found


async def statuses(call: SqlCall) -> object:
    """The states of the last statements by the id of their command."""
    found = call.engine.server.statuses
    return {"commandStatuses": {command: each["status"] for command, each in found.items()}}


async def is_valid_property(call: SqlCall) -> object:
    """Whether SET can change a property."""
    try:
        check_property(call.path["property"])
    except StatementRefused as error:
        raise bad_request(error.message) from None
    return True


async def terminate_cluster(call: SqlCall) -> object:
    """Terminates all queries, drops all streams and tables, and deletes topics that are named."""
    engine = call.engine
    fields = call.fields()
    patterns = fields.get("deleteTopicList") or []
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise bad_request("The field deleteTopicList must be a list of texts")
    try:
        wanted = [re.compile(each, re.IGNORECASE) for each in patterns]
    except re.error as error:
        raise bad_request(f"deleteTopicList has an invalid regular expression: {error}") from None
    server = engine.server
    text = "TERMINATE CLUSTER"
    try:
        async with server.turn:
            await terminate(server, TerminateQuery(text, None))
            sources = server.catalog.sources()
            removed = [key_of(SOURCE, each.name) for each in sources]
            removed += [key_of(REPLAY, each.name) for each in server.catalog.replays()]
            if removed:
                await server.change(removed=removed)
        for each in sources:
            topic = each.source.topic
            if each.is_derived and any(one.fullmatch(topic) for one in wanted):
                await remove_topic(server.cluster, topic)
    except StatementRefused as error:
        raise statement_error(StatementFailure(text, error)) from None
    return []
