"""The route table of the console's HTTP API. The pages are in `assets.py`.

Rows with a method other than GET change something, but for searches and questions that need a
body: those are in `_READS`.
"""

from collections.abc import Awaitable, Callable

from headrace.console import overview_api, records_api, topics_api
from headrace.console.console_request import ConsoleRequest
from headrace.service.routes import HttpRoute

Handler = Callable[[ConsoleRequest], Awaitable[object]]
Row = tuple[str, str, Handler]

_READS: tuple[Row, ...] = (
    ("GET", "/api/session", overview_api.get_session),
    ("GET", "/api/cluster", overview_api.get_cluster),
    ("GET", "/api/topics", topics_api.list_topics),
    ("POST", "/api/topic-numbers", topics_api.get_numbers),
    ("GET", "/api/topics/{topic}", topics_api.get_topic),
    ("GET", "/api/topics/{topic}/configs", topics_api.get_topic_configs),
    ("GET", "/api/topics/{topic}/records", records_api.list_records),
    ("GET", "/api/topics/{topic}/records/{partition}/{offset}", records_api.get_record),
    ("GET", "/api/topics/{topic}/records/{partition}/{offset}/{part}", records_api.download),
    ("GET", "/api/topics/{topic}/tail", records_api.follow),
    ("GET", "/api/topics/{topic}/search", records_api.search),
)

_CHANGES: tuple[Row, ...] = (
    ("POST", "/api/topics", topics_api.create_topic),
    ("PATCH", "/api/topics/{topic}/configs", topics_api.change_topic_configs),
    ("PATCH", "/api/topics/{topic}/partitions", topics_api.change_partitions),
    ("DELETE", "/api/topics/{topic}", topics_api.delete_topic),
)


def routes(*, read_only: bool) -> tuple[HttpRoute[ConsoleRequest], ...]:
    """The rows that this console has; a read-only console has none that changes something."""
    rows = _READS if read_only else (*_READS, *_CHANGES)
    return tuple(HttpRoute(*row) for row in rows)
