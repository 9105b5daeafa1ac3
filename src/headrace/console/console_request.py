"""A request to the console: the chassis's request with the console's state and parameters."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.console.consoles import Consoles
from headrace.security.audit import Audit
from headrace.security.principals import ANONYMOUS
from headrace.service.errors import HttpError
from headrace.service.request import Request

if TYPE_CHECKING:
    from headrace.console.console import Console


class ConsoleRequest(Request):
    """A request with the state that it is about."""

    __slots__ = ("_consoles", "console")

    console: "Console"
    """The state that handlers use; `open_console` sets it."""

    def __init__(
        self,
        consoles: Consoles,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(method, path, query, headers)
        self._consoles = consoles

    @property
    def audit(self) -> Audit:
        """The audit log of the console."""
        return self._consoles.audit

    async def open_console(self) -> None:
        """Waits until the console's state is open."""
        self.console = await self._consoles.get(self.principal or ANONYMOUS)

    def fields(self) -> Mapping[str, object]:
        """The body as an object."""
        body = self.json()
        if not isinstance(body, dict):
            raise HttpError(400, "The body must be a JSON object")
        return body

    def field(self, name: str) -> str:
        """A text field of the body that must be there."""
        value = self.fields().get(name)
        if not isinstance(value, str) or not value:
            raise HttpError(400, f"The field {name} must be a text that is not empty")
        return value


def whole_number(name: str, value: object, lowest: int = 0, highest: int = 2**63 - 1) -> int:
    """A number of a request, as a JSON number or as text; numbers above 2^53 come as text."""
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdecimal():
        raise HttpError(400, f"{name} must be a whole number")
    if len(text) > 20 or not lowest <= int(text) <= highest:
        raise HttpError(400, f"{name} must be between {lowest} and {highest}")
    return int(text)


def text_map(name: str, value: object) -> dict[str, str]:
    """An object of texts in a request."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise HttpError(400, f"{name} must be an object whose values are texts")
    return value
