"""Large and hard schemas are checked in other processes, within limits, without blocking."""

import asyncio
import json
import signal
import uuid
from collections.abc import Sequence

import httpx
import pytest

from headrace.registry import limits
from headrace.registry.failures import INVALID_SCHEMA, RegistryError
from headrace.registry.http_service import registry_service
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser, SchemaSource
from headrace.registry.schemas_topic import TopicLocation
from headrace.registry.service import Registry
from headrace.registry.work import (
    CANONICAL,
    NORMALIZED,
    Answers,
    NeedsWork,
    Result,
    Task,
    TextOf,
    decode_task,
    encode_task,
    is_quick,
)
from headrace.registry.workers import Workers
from headrace.schemas.interface import SchemaDependency
from headrace.service.application import Application
from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user

EVIL = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "string"}}}
VICTIM = {"type": "object", "properties": {"a" * 60 + "!": {"type": "integer"}}}
"""Matching its one property with the pattern above takes exponential time."""


def compared(old: str, new: str, kind: str = "AVRO", level: str = "BACKWARD") -> Comparison:
    return Comparison(level, SchemaSource(kind, new), ((1, SchemaSource(kind, old)),))


def unions(count: int, letter: str) -> str:
    return json.dumps(
        [{"type": "record", "name": f"{letter}{n}", "fields": []} for n in range(count)]
    )


def results(tasks: Sequence[Task], workers_cpu_s: float = 60) -> list[Result | Exception]:
    """What other processes make of the tasks, one after the other."""

    async def run() -> list[Result | Exception]:
        workers = Workers(1, workers_cpu_s)
        found: list[Result | Exception] = []
        for task in tasks:
            try:
                found.append(await workers.run(task))
            except RegistryError as error:
                found.append(error)
        await workers.stop()
        return found

    return asyncio.run(run())


TASKS: list[Task] = [
    TextOf(SchemaSource("AVRO", user(AGE)), CANONICAL),
    TextOf(SchemaSource("AVRO", '{"type":"int","b":1,"a":"é\U00010330"}'), NORMALIZED),
    TextOf(SchemaSource("PROTOBUF", 'syntax = "proto3"; message M {}'), "serialized"),
    TextOf(
        SchemaSource("AVRO", '["shop.A"]', (SchemaDependency("A", user(name="A")),)), "resolved"
    ),
    compared(user(), user(AGE)),
    compared(user(), user(AGE_WITH_DEFAULT), level="FULL_TRANSITIVE"),
]


def test_another_process_has_the_same_results() -> None:
    assert [decode_task(encode_task(task)) for task in TASKS] == TASKS
    found = results([*TASKS, TextOf(SchemaSource("AVRO", "nonsense"), CANONICAL), TASKS[0]])
    refused = found.pop(len(TASKS))
    assert isinstance(refused, RegistryError)
    assert refused.code == INVALID_SCHEMA
    assert "not JSON" in refused.message
    assert found == [task.run(Parser()) for task in [*TASKS, TASKS[0]]]


def test_a_task_that_never_ends_is_refused_and_the_next_one_is_done() -> None:
    endless = compared(json.dumps(VICTIM), json.dumps(EVIL), "JSON")
    refused, done = results([endless, TASKS[0]], workers_cpu_s=2)
    assert isinstance(refused, RegistryError)
    assert refused.code == INVALID_SCHEMA
    assert "2 s of processor time" in refused.message
    assert done == TASKS[0].run(Parser())


def test_a_process_that_is_killed_while_it_waits_fails_no_task() -> None:
    async def run() -> list[Result]:
        workers = Workers(1)
        await workers.run(TASKS[0])
        found = []
        for number in (signal.SIGSEGV, signal.SIGKILL):
            (process,) = workers._free
            process.send_signal(number)
            found.append(await workers.run(TASKS[0]))
        await workers.stop()
        return found

    assert asyncio.run(run()) == [TASKS[0].run(Parser())] * 2


def test_a_schema_that_ends_every_process_is_refused() -> None:
    async def run() -> object:
        workers = Workers(1)
        # This one cannot even start: it is given no number of seconds.
        workers._cpu_s = "nonsense"  # type: ignore[assignment]
        (failed,) = await asyncio.gather(workers.run(TASKS[0]), return_exceptions=True)
        await workers.stop()
        return failed

    failed = asyncio.run(run())
    assert isinstance(failed, RegistryError)
    assert failed.code == INVALID_SCHEMA
    assert "crashes" in failed.message


def test_tasks_do_not_wait_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_TASKS", 2)

    async def run() -> list[object]:
        workers = Workers(1)
        found: list[object] = await asyncio.gather(
            *map(workers.run, TASKS[:3]), return_exceptions=True
        )
        await workers.stop()
        return found

    *done, refused = asyncio.run(run())
    assert done == [task.run(Parser()) for task in TASKS[:2]]
    assert isinstance(refused, RegistryError)
    assert refused.status == 429


@pytest.mark.parametrize(
    ("task", "quick"),
    [
        (TextOf(SchemaSource("AVRO", user(AGE)), CANONICAL), True),
        (TextOf(SchemaSource("AVRO", unions(1000, "R")), CANONICAL), False),
        (
            TextOf(
                SchemaSource("AVRO", '"A"', (SchemaDependency("A", unions(1000, "R")),)), CANONICAL
            ),
            False,
        ),
        (TextOf(SchemaSource("AVRO", " " * (limits.SCHEMA_CHARACTERS + 1)), CANONICAL), True),
        (TextOf(SchemaSource("COBOL", "x"), CANONICAL), True),
        (TextOf(SchemaSource("JSON", json.dumps(VICTIM)), CANONICAL), True),
        (TextOf(SchemaSource("JSON", json.dumps(EVIL)), CANONICAL), True),
        (compared(json.dumps(VICTIM), json.dumps(EVIL), "JSON"), False),
        (compared('{"\\u0070attern":"a"}', "{}", "JSON"), False),
        (compared(user(), user(AGE)), True),
    ],
)
def test_the_event_loop_works_only_on_what_is_small_and_matches_no_patterns(
    task: Task, quick: bool
) -> None:
    assert is_quick(task) is quick


def test_a_short_comparison_with_many_pairs_is_no_quick_one() -> None:
    short = compared(unions(150, "A"), unions(150, "B"))
    assert is_quick(short)
    with pytest.raises(NeedsWork) as undecided:
        Answers(Parser()).problems(short)
    assert undecided.value.task == short


def chain(order: Sequence[int]) -> object:
    """An Avro record with fields of 700 types in this order, each of which has the one before."""
    types = [
        {"type": "record", "name": "R", "namespace": f"n{n}",
         "fields": [{"name": "f", "type": f"n{n - 1}.R" if n else "int"}]}
        for n in range(700)
    ]  # fmt: skip
    all_types = [{"name": f"t{n}", "type": each} for n, each in enumerate(types)]
    fields = [{"name": f"f{n}", "type": f"n{each}.R"} for n, each in enumerate(order)]
    return {"type": "record", "name": "Top", "fields": [*all_types, *fields]}


def references(kind: str) -> object:
    """A JSON Schema in which a property leads to a property 1,500 times."""
    steps = {
        f"d{n}": {"properties": {"p": {"$ref": f"#/definitions/d{n + 1}"}}} for n in range(1500)
    }
    return {"$ref": "#/definitions/d0", "definitions": {**steps, "d1500": {"type": kind}}}


DEEP = {
    "AVRO": (chain(range(700)), chain(range(699, -1, -1))),
    "JSON": (references("integer"), references("string")),
}


@pytest.mark.parametrize("kind", DEEP)
def test_schemas_that_refer_to_each_other_in_a_long_chain_are_refused(kind: str) -> None:
    old, new = map(json.dumps, DEEP[kind])
    with pytest.raises(RegistryError, match="too deeply"):
        compared(old, new, kind).run(Parser())


async def _canaries(bootstrap: str, large_request: str) -> tuple[httpx.Response, int]:
    """The answer to a request that never ends by itself, and how many others were answered
    meanwhile."""
    registry = Registry(TopicLocation(bootstrap, f"_schemas-{uuid.uuid4().hex[:8]}"))
    registry.workers = Workers(cpu_s=2)
    await registry.start()
    transport = httpx.ASGITransport(app=Application(registry_service(registry)))
    async with httpx.AsyncClient(transport=transport, base_url="http://registry") as http:
        old = {"schemaType": "JSON", "schema": json.dumps(VICTIM)}
        assert (await http.post("/subjects/large/versions", json=old)).status_code == 200
        new = {"schemaType": "JSON", "schema": json.dumps(EVIL)}
        large = asyncio.create_task(http.post(large_request, json=new))
        answered = 0
        while not large.done():
            small = {"schema": user(name=f"U{answered}")}
            answer = await http.post(f"/subjects/small-{answered}/versions", json=small)
            assert answer.status_code == 200
            answered += 1
    await registry.stop()
    return large.result(), answered


@pytest.mark.parametrize(
    "large_request", ["/subjects/large/versions", "/compatibility/subjects/large/versions"]
)
def test_others_are_answered_while_a_hard_schema_is_checked(
    bootstrap: str, large_request: str
) -> None:
    refused, answered = asyncio.run(_canaries(bootstrap, large_request))
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42201)
    assert answered > 3
