"""Tasks on schemas, and whether they run in the event loop or in a worker process.

A task contains its complete input as texts. A quick one runs in the event loop; others run in a
worker process (`workers.py`, `worker_process.py`), where they can be stopped. Results are texts,
too; parsed schemas are not passed between processes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.registry import failures, limits
from headrace.registry.failures import RegistryError, TooLargeToCompare
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser, SchemaSource
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.formats import FORMATS
from headrace.schemas.interface import SchemaDependency

CANONICAL = "canonical"
NORMALIZED = "normalized"


@dataclass(frozen=True, slots=True)
class TextOf:
    """The text of a schema: canonical, normalized, or in another form of its type."""

    source: SchemaSource
    form: str

    def run(self, parser: Parser) -> str:
        parsed = parser.parse(self.source)
        match self.form:
            case "canonical":
                return parsed.canonical
            case "normalized":
                return parsed.normalized()
        try:
            return parsed.formatted(self.form)
        except InvalidSchema as error:
            raise failures.invalid_schema(str(error)) from None


Task: TypeAlias = TextOf | Comparison
Result: TypeAlias = str | Sequence[str]


class NeedsWork(RegistryError):
    """The decision needs the result of this task first."""

    def __init__(self, task: Task) -> None:
        super().__init__(503, "The schema is still being checked; try again")
        self.task = task


class Answers:
    """Task results for one request. Quick tasks run here."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._finished: dict[Task, Result] = {}

    def add(self, task: Task, result: Result) -> None:
        self._finished[task] = result

    def text(self, source: SchemaSource, form: str) -> str:
        """The text of a schema; raises NeedsWork if the task is not quick."""
        task = TextOf(source, form)
        found = self._finished.get(task)
        if found is None:
            if not is_quick(task):
                raise NeedsWork(task)
            return task.run(self._parser)
        assert isinstance(found, str)
        return found

    def problems(self, compared: Comparison) -> Sequence[str]:
        """Why the schema is incompatible; raises NeedsWork if the check is not quick."""
        found = self._finished.get(compared)
        if found is not None:
            return found
        if not is_quick(compared):
            raise NeedsWork(compared)
        try:
            return compared.run(self._parser, limits.QUICK_COMPARISONS, remember=True)
        except TooLargeToCompare:
            raise NeedsWork(compared) from None


def is_quick(task: Task) -> bool:
    """Whether the task takes at most some milliseconds, judged by the size of its texts."""
    sources = [task.source] if isinstance(task, TextOf) else task.sources
    if sources[0].kind not in FORMATS or len(sources[0].text) > limits.SCHEMA_CHARACTERS:
        return True  # it is rejected without parsing
    characters = sum(each.characters for each in sources)
    if any(characters > FORMATS[each.kind].quick_characters for each in sources):
        return False
    # Only comparisons evaluate regular expressions.
    return isinstance(task, TextOf) or not any(map(_has_patterns, sources))


def _has_patterns(source: SchemaSource) -> bool:
    texts = (source.text, *(each.text for each in source.dependencies))
    return any(map(FORMATS[source.kind].may_have_patterns, texts))


# ------------------------------------------------------------------------- between processes


def encode_task(task: Task) -> bytes:
    if isinstance(task, TextOf):
        return json.dumps({"form": task.form, "source": _source_json(task.source)}).encode()
    earlier = [[number, _source_json(source)] for number, source in task.earlier]
    made = {"level": task.level, "new": _source_json(task.new), "earlier": earlier}
    return json.dumps(made).encode()


def decode_task(raw: bytes) -> Task:
    found = json.loads(raw)
    if "form" in found:
        return TextOf(_source(found["source"]), found["form"])
    earlier = tuple((number, _source(source)) for number, source in found["earlier"])
    return Comparison(found["level"], _source(found["new"]), earlier)


def _source_json(source: SchemaSource) -> list[object]:
    return [source.kind, source.text, [[each.name, each.text] for each in source.dependencies]]


def _source(found: Sequence[object]) -> SchemaSource:
    kind, text, dependencies = found
    assert isinstance(dependencies, list)
    return SchemaSource(
        str(kind), str(text), tuple(SchemaDependency(*each) for each in dependencies)
    )


def encode_result(result: Result | RegistryError) -> bytes:
    if isinstance(result, RegistryError):
        return json.dumps({"code": result.code, "message": result.message}).encode()
    return json.dumps({"result": result}).encode()


def decode_result(raw: bytes) -> Result:
    """The result; raises the error that the worker returned."""
    found: Mapping[str, object] = json.loads(raw)
    if "result" in found:
        result = found["result"]
        assert isinstance(result, str | list)
        return result
    raise RegistryError(int(str(found["code"])), str(found["message"]))
