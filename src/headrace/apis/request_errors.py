"""Error codes in the responses of this broker, by API.

Hot handlers count the errors that they return; dispatch counts those of all other APIs
(`error_codes.py`).
"""


class RequestErrors:
    """Counts error codes."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], int] = {}
        """How often there was an error, by API key and code."""

    def add(self, api_key: int, code: int) -> None:
        """Count an error in a response; NONE is not counted."""
        if code:
            key = (api_key, int(code))
            self.counts[key] = self.counts.get(key, 0) + 1

    def of(self, api_key: int) -> int:
        """How many errors the responses of one API had."""
        return sum(count for (key, _), count in self.counts.items() if key == api_key)
