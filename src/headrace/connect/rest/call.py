"""A request to Connect: its worker, its parameters and its body."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from headrace.connect.errors import bad_request, not_found
from headrace.connect.worker import ConnectWorker
from headrace.service.request import Request


class ConnectCall(Request):
    """What handlers get."""

    __slots__ = ("worker",)

    def __init__(
        self,
        worker: ConnectWorker,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(method, path, query, headers)
        self.worker = worker

    @property
    def name(self) -> str:
        """The connector in the path."""
        return self.path["connector"]

    @property
    def task(self) -> int:
        """The task in the path."""
        text = self.path["task"]
        if not text.isascii() or not text.isdecimal():
            raise not_found("HTTP 404 Not Found")
        return int(text)

    def fields(self) -> dict[str, object]:
        """The body, which must be an object."""
        body = self.json()
        if not isinstance(body, dict):
            raise bad_request("The body must be a JSON object")
        return body

    def location(self, name: str) -> str:
        """The address of a connector, for the header `Location`."""
        address = self.worker.options.address
        host = self.headers.get(b"host", b"").decode("latin-1") or address.worker_id
        return f"{address.scheme}://{host}/connectors/{quote(name, safe='')}"


def config_of(value: object, what: str = "config") -> dict[str, str | None]:
    """A configuration from JSON. Numbers and booleans become texts, as in Kafka Connect."""
    if not isinstance(value, dict):
        raise bad_request(f"{what} must be a JSON object with the options of the connector")
    found: dict[str, str | None] = {}
    for option, given in value.items():
        if isinstance(given, (dict, list)):
            raise bad_request(f"The option {option} must be a text, not an object or a list")
        if isinstance(given, bool):
            found[option] = str(given).lower()
        else:
            found[option] = None if given is None else str(given)
    return found
