"""Client metrics (KIP-714): subscriptions, and the values that clients have pushed."""

import asyncio
from collections.abc import Mapping

from headrace.admin.pushed_metrics import PushedPage, read_pushed_metrics
from headrace.client.cluster import Cluster
from headrace.client.configs import alter_configs, describe_configs, list_client_metrics
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.service.errors import HttpError
from headrace.types import ConfigResourceType

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
NO_ADDRESS = "the console was started without --metrics-url"


async def list_all(request: ConsoleRequest) -> object:
    """All subscriptions with their configs."""
    return {"subscriptions": await request.console.cluster.run(_subscriptions)}


async def put_subscription(request: ConsoleRequest) -> object:
    """Creates a subscription, or changes it; a list that is empty is put back to its default."""
    name, body = request.path["name"], request.fields()
    lists = {METRICS: _words(METRICS, body), MATCH: _words(MATCH, body)}
    to_set = {key: ",".join(words) for key, words in lists.items() if words}
    to_delete = [key for key, words in lists.items() if not words]
    interval = body.get("interval_ms")
    if interval in (None, ""):
        to_delete.append(INTERVAL)
    else:
        to_set[INTERVAL] = str(whole_number("interval_ms", interval, 1, 2**31 - 1))
    if not to_set:
        raise HttpError(400, "A subscription needs metrics, patterns or an interval")
    await request.console.cluster.run(_change, name, to_set, to_delete)
    return {"name": name}


async def delete_subscription(request: ConsoleRequest) -> object:
    """Deletes a subscription: one without configs does not exist."""
    name = request.path["name"]
    await request.console.cluster.run(_change, name, {}, [METRICS, INTERVAL, MATCH])
    return {"name": name}


async def list_clients(request: ConsoleRequest) -> object:
    """The clients that have pushed metrics, and to which brokers."""
    pages = await _pages(request)
    return {
        "clients": [
            {"id": id_, "instance": instance, "source": page.source, "metrics": len(metrics)}
            for page in pages
            for (id_, instance), metrics in page.clients.items()
        ],
        **_gaps(pages),
    }


async def get_client(request: ConsoleRequest) -> object:
    """The values that one client has pushed."""
    pages = await _pages(request)
    wanted = request.path["instance"]
    rows = [
        {
            "name": metric.name,
            "labels": dict(metric.labels),
            "value": metric.value,
            "source": page.source,
        }
        for page in pages
        for (_, instance), metrics in page.clients.items()
        if instance == wanted
        for metric in metrics
    ]
    if not rows and all(not page.problem for page in pages):
        raise HttpError(404, f"No broker has metrics of the client instance {wanted[:100]}")
    return {"metrics": rows, **_gaps(pages)}


async def _pages(request: ConsoleRequest) -> list[PushedPage]:
    urls = request.console.options.metrics_urls
    if not urls:
        raise HttpError(501, NO_ADDRESS)
    return await asyncio.gather(*(asyncio.to_thread(read_pushed_metrics, url) for url in urls))


def _gaps(pages: list[PushedPage]) -> dict[str, object]:
    return {
        "problems": [page.problem for page in pages if page.problem],
        "left_out": sum(page.left_out for page in pages),
    }


def _subscriptions(cluster: Cluster) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name in list_client_metrics(cluster):
        rows = describe_configs(cluster, ConfigResourceType.CLIENT_METRICS, name)
        values = {each.name: each.value or "" for each in rows}
        found.append(
            {
                "name": name,
                "metrics": [each for each in values.get(METRICS, "").split(",") if each],
                "interval_ms": values.get(INTERVAL) or None,
                "match": [each for each in values.get(MATCH, "").split(",") if each],
            }
        )
    return found


def _change(cluster: Cluster, name: str, to_set: Mapping[str, str], to_delete: list[str]) -> None:
    alter_configs(cluster, ConfigResourceType.CLIENT_METRICS, name, to_set, to_delete)


def _words(name: str, body: Mapping[str, object]) -> list[str]:
    """A list of texts without commas, which separate them in the config."""
    given = body.get(name, [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise HttpError(400, f"The field {name} must be a list of texts")
    if any("," in each for each in given):
        raise HttpError(400, f"An entry of {name} must not contain a comma")
    return [each.strip() for each in given if each.strip()]
