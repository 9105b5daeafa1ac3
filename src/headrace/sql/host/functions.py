"""Python functions of CREATE FUNCTION, as functions of Spark's SQL."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.types import type_of
from headrace.sql.hosting import FunctionSpec, QueryRefused


def register_functions(spark: SparkSession, functions: Sequence[FunctionSpec]) -> None:
    """Make the functions known to the SQL of a session."""
    for each in functions:
        made = F.udf(_compiled(each), type_of(each.returns), useArrow=True)
        spark.udf.register(each.name, made)


def _compiled(function: FunctionSpec) -> Callable[..., Any]:
    """The function; its body is a body of `def`, or a single expression."""
    names = ", ".join(name for name, _ in function.parameters)
    body = textwrap.dedent(function.body.strip("\n")).rstrip()
    try:
        source = f"return (\n{textwrap.indent(body, '    ')}\n)"
        compile(body.strip(), function.name, "eval")
    except SyntaxError:
        source = body
    text = f"def function({names}):\n{textwrap.indent(source, '    ')}\n"
    found: dict[str, Any] = {}
    try:
        exec(compile(text, f"function {function.name}", "exec"), found)
    except Exception as error:
        raise QueryRefused(f"the function {function.name} is not Python: {error}") from None
    made: Callable[..., Any] = found["function"]
    return made


def check_functions(functions: Sequence[FunctionSpec], settings: SqlDriverSettings) -> None:
    """QueryRefused if there are functions and the server does not allow them."""
    if functions and not settings.allows_functions:
        raise QueryRefused(
            f"the server does not run Python functions such as {functions[0].name}; it has to be "
            "started with headrace.sql.functions.enable=true"
        )
