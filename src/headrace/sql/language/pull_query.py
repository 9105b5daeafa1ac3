"""Pull queries in Spark's SQL, which sqlglot can translate into that of the view store."""

import sqlglot
from sqlglot import exp

from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.planner.function_rewriting import RewriteContext, rewritten
from headrace.sql.language.planner.scope import with_milliseconds
from headrace.sql.language.select import Select


def spark_query(select: Select) -> exp.Query:
    """The query with Spark's functions, in classes of sqlglot that other dialects know too.

    Names of sources and columns are as they were written. Raises SqlError for functions that are
    not possible in a pull query.
    """
    found = rewritten(with_milliseconds(select.expression), RewriteContext())
    query = sqlglot.parse_one(sql_of(found), read="spark")
    assert isinstance(query, exp.Query), "a query is still one in other words"
    return query
