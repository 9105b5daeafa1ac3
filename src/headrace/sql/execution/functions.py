"""CREATE and DROP of types and functions, LIST FUNCTIONS and DESCRIBE FUNCTION."""

from headrace.sql.commands.records import (
    FUNCTION,
    TYPE,
    StoredFunction,
    StoredType,
    key_of,
)
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.creating import now_ms
from headrace.sql.execution.entities import Entity, done, entity, warning
from headrace.sql.hosting import FunctionSpec
from headrace.sql.language.planner.functions import AGGREGATES
from headrace.sql.language.statements import (
    CreateFunction,
    CreateType,
    DescribeFunction,
    DropFunction,
    DropType,
)
from headrace.sql.language.words import FUNCTION_NAMES
from headrace.sql.server import SqlServer
from headrace.sql.type_names import type_text


async def create_type(server: SqlServer, statement: CreateType) -> Entity:
    if server.catalog.type(statement.name) is not None:
        message = f"There is a type {statement.name} already"
        if statement.if_not_exists:
            return warning(statement.text, message)
        raise StatementRefused(f"{message}. DROP TYPE {statement.name} first")
    stored = StoredType(statement.name, statement.text, now_ms(), statement.type)
    sequence = await server.change([stored])
    message = f"Registered custom type with name '{statement.name}' and SQL type " + type_text(
        statement.type
    )
    return done(statement.text, f"type/{statement.name}/create", message, sequence)


async def drop_type(server: SqlServer, statement: DropType) -> Entity:
    """Streams and tables keep their columns: the type has been replaced by what it stands for."""
    if not server.catalog.has(TYPE, statement.name):
        message = f"Type '{statement.name}' does not exist"
        if statement.if_exists:
            return warning(statement.text, message)
        raise StatementRefused(message)
    sequence = await server.change(removed=[key_of(TYPE, statement.name)])
    message = f"Dropped type '{statement.name}'"
    return done(statement.text, f"type/{statement.name}/drop", message, sequence)


async def create_function(server: SqlServer, statement: CreateFunction) -> Entity:
    """A function in Python runs with the rights of the server, so the operator must allow it."""
    if not server.options.allows_functions:
        raise StatementRefused(
            "This server does not allow CREATE FUNCTION: its code runs with the rights of the "
            "server. The operator allows it with headrace.sql.functions.enable=true"
        )
    if statement.language != "PYTHON":
        raise StatementRefused(f"Functions are written in PYTHON, not in {statement.language}")
    try:
        compile(_as_function(statement), f"<function {statement.name}>", "exec")
    except SyntaxError as error:
        line = max((error.lineno or 2) - 1, 1)
        raise StatementRefused(
            f"The body of {statement.name} is not Python: {error.msg} (line {line})"
        ) from None
    found = server.catalog.function(statement.name)
    if found is not None and not statement.or_replace:
        message = f"There is a function {statement.name} already"
        if statement.if_not_exists:
            return warning(statement.text, message)
        raise StatementRefused(f"{message}. CREATE OR REPLACE FUNCTION changes it")
    spec = FunctionSpec(
        statement.name,
        tuple((each.name, each.type) for each in statement.parameters),
        statement.returns,
        statement.body,
        statement.options,
    )
    stored = StoredFunction(statement.name, statement.text, now_ms(), spec)
    sequence = await server.change([stored])
    message = f"Function {'replaced' if found else 'created'}"
    return done(statement.text, f"function/{statement.name}/create", message, sequence)


def _as_function(statement: CreateFunction) -> str:
    names = ", ".join(each.name for each in statement.parameters)
    lines = statement.body.strip("\n").splitlines() or ["pass"]
    indent = min((len(each) - len(each.lstrip()) for each in lines if each.strip()), default=0)
    return f"def {statement.name}({names}):\n" + "\n".join(f"    {each[indent:]}" for each in lines)


async def drop_function(server: SqlServer, statement: DropFunction) -> Entity:
    """Queries that run have the function with them, and keep it."""
    if not server.catalog.has(FUNCTION, statement.name):
        message = f"There is no function {statement.name} of CREATE FUNCTION"
        if statement.if_exists:
            return warning(statement.text, message)
        raise StatementRefused(message)
    sequence = await server.change(removed=[key_of(FUNCTION, statement.name)])
    return done(statement.text, f"function/{statement.name}/drop", "Function dropped", sequence)


def list_functions(server: SqlServer, text: str) -> Entity:
    """ksqlDB's functions that are translated, and those of CREATE FUNCTION. All of Spark's can be
    used as well."""
    rows = [
        {
            "name": name,
            "type": "AGGREGATE" if name in AGGREGATES else "SCALAR",
            "category": "BUILT IN",
        }
        for name in FUNCTION_NAMES
    ]
    rows += [
        {"name": each.name, "type": "SCALAR", "category": "PYTHON"}
        for each in server.catalog.functions()
    ]
    return entity("function_names", text, functions=rows)


def describe_function(server: SqlServer, statement: DescribeFunction) -> Entity:
    found = server.catalog.function(statement.name)
    if found is None:
        raise StatementRefused(
            f"There is no function {statement.name} of CREATE FUNCTION. The functions of Spark SQL "
            "are in its documentation"
        )
    spec = found.function
    arguments = [
        {"name": name, "type": type_text(kind), "description": "", "isVariadic": False}
        for name, kind in spec.parameters
    ]
    return entity(
        "describe_function",
        statement.text,
        name=found.name,
        description=found.sql,
        author="",
        version="",
        path="",
        functions=[
            {
                "arguments": arguments,
                "returnType": type_text(spec.returns),
                "description": spec.options.get("description", ""),
            }
        ],
        type="SCALAR",
    )
