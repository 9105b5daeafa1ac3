"""Consumer groups: list, one group with its lag over time, reset of offsets, deletion."""

from collections.abc import Mapping, Sequence

from headrace.admin import group_reset, positions
from headrace.admin.group_view import GroupView, TotalLag, describe
from headrace.client.cluster import Cluster
from headrace.client.groups import delete_groups
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.service.errors import HttpError

MOST_POINTS = 400


async def list_all(request: ConsoleRequest) -> object:
    """All groups with state, lag and status."""
    observer = request.console.observer
    views = await observer.groups()
    return {
        "observed": str(observer.observed_ms),
        "problem": observer.problem,
        "groups": [
            {
                "name": view.description.name,
                "state": view.description.state,
                "type": view.description.type,
                "members": len(view.description.members),
                "topics": sorted({row.topic for row in view.partitions}),
                **_lag(view),
                **_status(request, view),
            }
            for view in views
        ],
    }


async def get_group(request: ConsoleRequest) -> object:
    """One group: members, partitions, and its lag over time."""
    observer = request.console.observer
    await observer.groups()
    name = request.path["group"]
    view = observer.views.get(name)
    if view is None:
        await observer.look_again()
        view = observer.views.get(name)
    if view is None:
        raise HttpError(404, f"Group {name} does not exist")
    status = observer.status(view)
    statuses = {(each.topic, each.partition): each for each in status.partitions}
    points = observer.points(name)
    step = max(1, len(points) // MOST_POINTS)
    return {
        **view.description.as_json(),
        **_lag(view),
        **_status(request, view),
        "observed": str(observer.observed_ms),
        "members": [
            {
                "id": member.id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                **lag_fields(view.member_lag(member.id)),
                "partitions": None
                if member.assignment is None
                else [f"{topic}-{index}" for topic, index in member.assignment],
            }
            for member in view.description.members
        ],
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "committed": _text(row.committed),
                "end": _text(row.end),
                "lag": _text(row.lag),
                "lag_seconds": row.delay_s,
                "lag_seconds_note": row.delay_gap,
                "member": row.owner and row.owner.client_id,
                "status": statuses[row.topic, row.partition].status,
                "status_complete": statuses[row.topic, row.partition].complete,
            }
            for row in view.partitions
        ],
        "history": [[point.time_ms, _text(point.lag), point.delay_ms] for point in points[::step]],
    }


async def plan_reset(request: ConsoleRequest) -> object:
    """What a reset would change. It writes nothing."""
    name, body = request.path["group"], request.fields()
    changes = await request.console.cluster.run(
        _plan, name, _target(body), _scopes(body.get("topics"))
    )
    return {"changes": [_change(each) for each in changes]}


async def reset(request: ConsoleRequest) -> object:
    """Writes exactly the changes that `plan_reset` has shown."""
    name, given = request.path["group"], request.fields().get("changes")
    if not isinstance(given, list) or not given:
        raise HttpError(400, "The field changes must be a list as the plan has it")
    changes = [_parsed_change(each) for each in given]
    await request.console.cluster.run(_apply, name, changes)
    await request.console.observer.look_again()
    return {"name": name, "partitions": len(changes)}


async def delete(request: ConsoleRequest) -> object:
    """Deletes a group that has no members, with its offsets."""
    name = request.path["group"]
    refused = await request.console.cluster.run(delete_groups, [name])
    for error in refused.values():
        raise HttpError(422, str(error))
    await request.console.observer.look_again()
    return {"name": name}


def _lag(view: GroupView) -> dict[str, object]:
    return {**lag_fields(view.total), "lag_seconds": view.delay_s}


def lag_fields(lag: TotalLag) -> dict[str, object]:
    """A lag for a browser: null or too small if `lag_gap` has a reason."""
    return {"lag": _text(lag.records), "lag_gap": lag.gap}


def _status(request: ConsoleRequest, view: GroupView) -> dict[str, object]:
    status = request.console.observer.status(view)
    return {"status": status.status, "status_complete": status.complete}


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _target(body: Mapping[str, object]) -> group_reset.Target:
    """The target of a reset: beginning, end, offset, time or shift."""
    value = body.get("value", "")
    match body.get("to"):
        case "beginning":
            return positions.Beginning()
        case "end":
            return positions.End()
        case "offset":
            return positions.At(whole_number("value", value))
        case "time":
            return positions.Since(whole_number("value", value))
        case "shift":
            return group_reset.Shift(whole_number("value", value, -(2**63)))
    raise HttpError(400, "The field to must be beginning, end, offset, time or shift")


def _scopes(topics: object) -> list[group_reset.ResetScope] | None:
    if topics is None:
        return None
    if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
        raise HttpError(400, "The field topics must be a list of texts")
    return [group_reset.ResetScope(each, None) for each in topics]


def _plan(
    cluster: Cluster,
    name: str,
    target: group_reset.Target,
    scopes: Sequence[group_reset.ResetScope] | None,
) -> Sequence[group_reset.OffsetChange]:
    plan = group_reset.plan_reset(cluster, name, target, scopes)
    group_reset.check_unused(plan.group, group_reset.RESET_NEEDS_NO_MEMBERS)
    return plan.changes


def _apply(cluster: Cluster, name: str, changes: Sequence[group_reset.OffsetChange]) -> None:
    group = describe(cluster, [name])[name]
    group_reset.apply_reset(cluster, group_reset.ResetPlan(group, tuple(changes)))


def _change(change: group_reset.OffsetChange) -> dict[str, object]:
    return {
        "topic": change.topic,
        "partition": change.partition,
        "from": _text(change.before),
        "to": str(change.after),
        "difference": _text(change.difference),
        "limited": change.limited,
    }


def _parsed_change(given: object) -> group_reset.OffsetChange:
    if not isinstance(given, dict) or not isinstance(given.get("topic"), str):
        raise HttpError(400, "A change has the fields topic, partition and to")
    return group_reset.OffsetChange(
        given["topic"],
        whole_number("partition", given.get("partition"), 0, 2**31 - 1),
        None,
        whole_number("to", given.get("to")),
    )
