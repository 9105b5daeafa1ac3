"""sqlglot's parser for SELECTs: Spark's grammar with ksqlDB's quotes.

As in ksqlDB, strings are in single quotes and have no escapes but `''`, and names are in double
quotes or backticks. Functions are not interpreted: all of them are read as `exp.Anonymous`, because
ksqlDB and Spark have different functions with the same names (`functions.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from headrace.sql.language.datatypes import NO_TYPES, SIMPLE_TYPES
from headrace.sql.language.errors import SqlError, did_you_mean

_UNDERSTOOD = ("CAST", "TRY_CAST", "EXTRACT")
"""Functions whose arguments are not all expressions."""


class KsqlParser(SparkParser):
    """Spark's parser without functions."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in _UNDERSTOOD
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


class KsqlDialect(Spark):
    """See the module."""

    SUPPORTS_USER_DEFINED_TYPES = True
    UNESCAPED_SEQUENCES: dict[str, str] = {}  # noqa: RUF012 - as in sqlglot's own dialects
    Parser = KsqlParser

    class Tokenizer(Spark.Tokenizer):
        """Quotes."""

        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']
        STRING_ESCAPES: ClassVar = ["'"]
        RAW_STRINGS: ClassVar = []
        HEX_STRINGS: ClassVar = []
        NUMERIC_LITERALS: ClassVar = {}
        NUMERIC_ESCAPES: ClassVar = {}
        KEYWORDS: ClassVar = {**Spark.Tokenizer.KEYWORDS, "BYTES": TokenType.BINARY}


class SparkText(Spark):
    """Spark's SQL, as Spark 4 reads it."""

    class Generator(SparkGenerator):
        """Types that sqlglot writes as others."""

        TYPE_MAPPING: ClassVar = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}


def sql_of(node: exp.Expr) -> str:
    """The text of an expression in Spark's SQL."""
    return node.sql(dialect=SparkText, normalize_functions=False)


def read_query(text: str, types: Mapping[str, str] = NO_TYPES) -> exp.Query:
    """The query in the text, in which the rest of the statement is blank.

    `types` are those of CREATE TYPE, as Spark's DDL by name in lower case.
    """
    try:
        found = KsqlDialect().parse(text)
    except ParseError as error:
        raise _readable(error) from None
    except (SqlglotError, RecursionError, TypeError, ValueError, AttributeError) as error:
        # The parser is not made for every text; whatever it stumbles over is no SELECT.
        raise SqlError("The SELECT cannot be read.") from error
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise SqlError("Expected one SELECT.")
    query = found[0]
    for each in list(query.find_all(exp.DataType)):
        if each.this == exp.DType.USERDEFINED:
            name = str(each.args.get("kind") or "")
            known = types.get(name.casefold())
            if known is None:
                raise SqlError(f"Unknown type {name}.{did_you_mean(name, [*SIMPLE_TYPES, *types])}")
            each.replace(exp.DataType.build(known, dialect="spark"))
    return query


def _readable(error: ParseError) -> SqlError:
    """The first error of the parser, as a sentence."""
    first = error.errors[0] if error.errors else {}
    found = str(first.get("highlight") or "")
    column = first.get("col")
    place = (first.get("line"), None if column is None else max(1, column - len(found) + 1))
    what = str(first.get("description") or error).rstrip(".")
    if what.startswith("Required keyword"):
        message = f"Something is missing after {found!r}."
    elif what.startswith("Expect") and "<" not in what:
        message = f"{what.replace('Expecting', 'Expected')} near {found!r}."
    else:
        message = f"{found!r} is not expected here." if found else "The SELECT cannot be read."
    return SqlError(message, *place)
