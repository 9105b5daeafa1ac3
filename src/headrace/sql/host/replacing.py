"""Whether a query can continue with the checkpoint of the one that it replaces.

What the state must look like is asked of Spark: the new query plans its next epoch on a copy of
the checkpoint without the state itself. Nothing is run, and the old query goes on.
"""

import json
import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.connect.host.failures import failure_of
from headrace.sql.host.analysis import output_mode
from headrace.sql.host.plan_frames import plan_rows
from headrace.sql.host.refusals import refusals
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.views import streaming_views
from headrace.sql.hosting import QueryRefused, QuerySpec

PLAN_FILE = "headrace-plan.json"
"""In a checkpoint: what cannot change while the checkpoint is used."""
FOLDER = ".checks"
PLANNED_WITHIN_S = 90.0
_WAYS_OUT = (
    " Replace the query with another start, or create one with another name beside it: the state "
    "of the present one is kept until it is dropped"
)


def remember_plan(checkpoint: Path, spec: QuerySpec) -> None:
    """Store what a later replacement is compared with."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / PLAN_FILE).write_text(json.dumps(_identity(spec)))


def check_replacement(spark: SparkSession, settings: SqlDriverSettings, spec: QuerySpec) -> None:
    """QueryRefused if the query cannot continue with the checkpoint of its generation."""
    checkpoint = settings.checkpoint(spec.id, spec.generation).absolute()
    last = max((int(each.name) for each in _numbered(checkpoint / "offsets")), default=None)
    if last is None:
        return
    try:
        known = json.loads((checkpoint / PLAN_FILE).read_text())
    except (OSError, ValueError):
        known = None
    if known is not None:
        _compare(known, _identity(spec))
    copy = Path(settings.folder).absolute() / FOLDER / uuid.uuid4().hex
    try:
        _copy_without_state(checkpoint, copy, last)
        _plan_epoch(spark, settings, spec, copy)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _identity(spec: QuerySpec) -> dict[str, object]:
    plan = spec.plan
    topics = {each.name.casefold(): each.topic for each in spec.sources}
    return {
        "kind": str(plan.kind),
        "topics": sorted({topics[each.source.casefold()] for each in plan.inputs if each.source}),
        "target": spec.target.topic,
        "mode": output_mode(plan),
        "keys": [name.casefold() for name in plan.keys] if plan.makes_table else [],
    }


_DIFFERENCES = {
    "kind": "the replacement is of another kind ({new} instead of {old}).",
    "topics": "the replacement reads other topics ({new} instead of {old}).",
    "target": "the replacement writes to another topic ({new} instead of {old}).",
    "mode": "EMIT CHANGES and EMIT FINAL have different states.",
    "keys": "the replacement has other keys ({new} instead of {old}).",
}


def _compare(known: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name, text in _DIFFERENCES.items():
        if known.get(name) != new[name]:
            old, changed = (
                ", ".join(each) if isinstance(each, list) else str(each)
                for each in (known.get(name), new[name])
            )
            raise QueryRefused(
                f"The state of the query cannot be kept: {text.format(old=old, new=changed)}"
                f"{_WAYS_OUT}."
            )


def _numbered(folder: Path) -> list[Path]:
    return [each for each in folder.glob("*") if each.name.isdigit()]


def _copy_without_state(checkpoint: Path, copy: Path, last: int) -> None:
    """The checkpoint as if its last epoch had been planned and not run."""
    copy.mkdir(parents=True)
    # With the id of the running query, Spark would stop that one.
    (copy / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    for part, upto in (("offsets", last), ("commits", last - 1)):
        (copy / part).mkdir()
        for each in _numbered(checkpoint / part):
            if int(each.name) <= upto:
                shutil.copy(each, copy / part)
    for each in (checkpoint / "state").rglob("*"):
        if each.is_file() and "_metadata" in each.parts and not each.name.startswith("."):
            place = copy / each.relative_to(checkpoint)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, place)


class _Planned(Exception):
    """The epoch was planned, and is not to be run."""


def _plan_epoch(
    spark: SparkSession, settings: SqlDriverSettings, spec: QuerySpec, checkpoint: Path
) -> None:
    planned = threading.Event()

    def stop(rows: DataFrame, epoch: int) -> None:
        planned.set()
        raise _Planned

    with refusals():
        views = streaming_views(spark, settings, spec.properties)
        rows = plan_rows(spark, spec.plan, spec.sources, spec.functions, views)
        writer = rows.writeStream.outputMode(output_mode(spec.plan)).foreachBatch(stop)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination(PLANNED_WITHIN_S)
    except Exception as error:
        if not planned.is_set():
            raise QueryRefused(_explained(error)) from None
    finally:
        query.stop()
    if not planned.is_set():
        raise QueryRefused("Spark did not plan the replacement in time. Try again.")


def _explained(error: Exception) -> str:
    text = str(error)
    if "STATE_STORE" in text or "STATEFUL_OPERATOR" in text or "STATE_SCHEMA" in text:
        return (
            "The state of the query cannot be kept: the replacement has other keys, aggregates, "
            f"windows or joins.{_WAYS_OUT}."
        )
    return f"The replacement cannot continue: {failure_of(error).sentence}"
