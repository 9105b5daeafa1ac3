"""Carries out the statements of a request, one after the other."""

from collections.abc import Mapping, Sequence

from headrace.sql.commands.records import QueryTarget
from headrace.sql.errors import QUERY_ENDPOINT, StatementRefused
from headrace.sql.execution import functions
from headrace.sql.execution.asserting import assert_schema, assert_topic
from headrace.sql.execution.changing import drop_source, set_target, terminate
from headrace.sql.execution.connectors import (
    create_connector,
    describe_connector,
    drop_connector,
)
from headrace.sql.execution.creating import alter_source, create_source
from headrace.sql.execution.describing import describe_source, explain
from headrace.sql.execution.entities import Entity
from headrace.sql.execution.inserting import RowInserter, insert_values
from headrace.sql.execution.listing import list_objects
from headrace.sql.execution.persistent import create_as, insert_select
from headrace.sql.execution.replays.comparing import compare
from headrace.sql.execution.replays.creating import create_replay, drop_replay
from headrace.sql.execution.replays.describing import describe_replay
from headrace.sql.execution.replays.switching import ReplaySwitches
from headrace.sql.execution.session import Session
from headrace.sql.language import statements as sql
from headrace.sql.language.errors import SqlError
from headrace.sql.language.parsing import parse
from headrace.sql.language.script import split, substitute
from headrace.sql.server import SqlServer


class StatementFailure(Exception):
    """A statement of a request failed. Those before it have been carried out."""

    def __init__(
        self, statement: str, error: StatementRefused, done: tuple[Entity, ...] = ()
    ) -> None:
        super().__init__(error.message)
        self.statement = statement
        self.error = error
        self.done = done


class Executor:
    """The statements of a server."""

    def __init__(self, server: SqlServer, inserter: RowInserter, switches: ReplaySwitches) -> None:
        self._server = server
        self._inserter = inserter
        self._switches = switches

    def parse(self, text: str, session: Session) -> list[sql.Statement]:
        """All statements of a script; StatementFailure if one cannot be read.

        Variables and types that the script defines are known to what follows.
        """
        types = {each.name.casefold(): each.type for each in self._server.catalog.types()}
        variables = dict(session.variables)
        found: list[sql.Statement] = []
        try:
            texts = split(text)
        except SqlError as error:
            raise StatementFailure(text, StatementRefused(str(error))) from None
        for each in texts:
            try:
                statement = parse(substitute(each, variables), types)
            except SqlError as error:
                raise StatementFailure(each, StatementRefused(str(error))) from None
            match statement:
                case sql.DefineVariable(name=name, value=value):
                    variables[name] = value
                case sql.UndefineVariable(name=name):
                    variables.pop(name, None)
                case sql.CreateType(name=name, type=kind):
                    types[name.casefold()] = kind
            found.append(statement)
        return found

    async def run(self, statements: Sequence[sql.Statement], session: Session) -> list[Entity]:
        """The results of statements; StatementFailure at the first one that fails."""
        done: list[Entity] = []
        for statement in statements:
            try:
                self._server.check_ready()
                done += await self.execute(statement, session)
            except StatementRefused as error:
                raise StatementFailure(statement.text, error, tuple(done)) from error
            except SqlError as error:
                refused = StatementRefused(str(error))
                raise StatementFailure(statement.text, refused, tuple(done)) from error
        return done

    async def execute(self, statement: sql.Statement, session: Session) -> list[Entity]:
        """The results of one statement."""
        match statement:
            case sql.SelectStatement() | sql.PrintTopic():
                raise StatementRefused(
                    "SELECT and PRINT queries must use the /query or /query-stream endpoint",
                    QUERY_ENDPOINT,
                )
            case sql.SetProperty(name=name, value=value):
                session.set(name, value)
            case sql.UnsetProperty(name=name):
                session.unset(name)
            case sql.DefineVariable(name=name, value=value):
                session.variables[name] = value
            case sql.UndefineVariable(name=name):
                session.variables.pop(name, None)
            case sql.InsertValues():
                await insert_values(self._server, self._inserter, statement)
            case _:
                found = await self._read(statement, session) or await self._replay(statement)
                if found is not None:
                    self._remember(found)
                    return [found]
                async with self._server.turn:
                    changed = await self._change(statement, session)
                for each in changed:
                    self._remember(each)
                return changed
        return []

    async def _read(self, statement: sql.Statement, session: Session) -> Entity | None:
        """The result of a statement that changes nothing here; None if it is not one of these."""
        server = self._server
        match statement:
            case sql.ListObjects():
                return await list_objects(server, statement, session)
            case sql.DescribeSource():
                return await describe_source(server, statement)
            case sql.DescribeReplay():
                return await describe_replay(server, statement)
            case sql.DescribeFunction():
                return functions.describe_function(server, statement)
            case sql.DescribeConnector():
                return await describe_connector(server, statement)
            case sql.ExplainQuery():
                return await explain(server, statement)
            case sql.AssertTopic():
                return await assert_topic(server, statement)
            case sql.AssertSchema():
                return await assert_schema(server, statement)
            case sql.CreateConnector():
                return await create_connector(server, statement)
            case sql.DropConnector():
                return await drop_connector(server, statement)
        return None

    async def _replay(self, statement: sql.Statement) -> Entity | None:
        """The result of a statement that takes the server's turn for a part of its work only."""
        match statement:
            case sql.CompareReplay():
                return await compare(self._server, statement)
            case sql.SwitchReplay():
                return await self._switches.switch(statement)
            case sql.RollbackReplay():
                return await self._switches.rollback(statement)
        return None

    async def _change(self, statement: sql.Statement, session: Session) -> list[Entity]:
        server = self._server
        match statement:
            case sql.CreateSource():
                return [await create_source(server, statement)]
            case sql.CreateAs():
                return [await create_as(server, statement, session)]
            case sql.InsertSelect():
                return [await insert_select(server, statement, session)]
            case sql.AlterSource():
                return [await alter_source(server, statement)]
            case sql.DropSource():
                return [await drop_source(server, statement)]
            case sql.TerminateQuery():
                return await terminate(server, statement)
            case sql.PauseQuery():
                return await set_target(server, statement, QueryTarget.PAUSED)
            case sql.ResumeQuery():
                return await set_target(server, statement, QueryTarget.RUNNING)
            case sql.CreateType():
                return [await functions.create_type(server, statement)]
            case sql.DropType():
                return [await functions.drop_type(server, statement)]
            case sql.CreateFunction():
                return [await functions.create_function(server, statement)]
            case sql.DropFunction():
                return [await functions.drop_function(server, statement)]
            case sql.RunScript() | sql.SpoolOutput():
                raise StatementRefused("RUN SCRIPT and SPOOL are statements of `headrace sql` only")
            case sql.AlterSystem():
                raise StatementRefused(
                    "ALTER SYSTEM is not supported: settings of the server are in its command line "
                    "and its settings file"
                )
            case sql.CreateReplay():
                return [await create_replay(server, statement, session)]
            case sql.DropReplay():
                return [await drop_replay(server, statement)]
        raise AssertionError(f"no part of the server carries out {type(statement).__name__}")

    def _remember(self, result: Mapping[str, object]) -> None:
        command, status = result.get("commandId"), result.get("commandStatus")
        if isinstance(command, str) and isinstance(status, Mapping):
            self._server.remember_status(command, status)
