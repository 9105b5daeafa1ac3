"""Errors of Spark's analysis as sentences for the person who wrote the statement."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException, PySparkException

from headrace.client.errors import ClientError
from headrace.sql.hosting import QueryRefused

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE:\s*\w+")
_PLACE = re.compile(r";?\s*line \d+ pos \d+.*$", re.DOTALL)


@contextmanager
def refusals() -> Iterator[None]:
    """Errors of the analysis of a plan as QueryRefused."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise QueryRefused(sentence(error)) from error
    except ClientError as error:
        raise QueryRefused(str(error)) from error


def sentence(error: PySparkException) -> str:
    """What an error says, without Spark's plan and the place in text that nobody wrote."""
    text = str(error).partition("\n== ")[0]
    text = _STATE.sub("", _CONDITION.sub("", text.strip()))
    text = _PLACE.sub("", text).partition(";\n")[0]
    return " ".join(text.split()).rstrip(";. ") + "."
