"""Keys and values of records as text, for systems whose messages are texts or bytes."""

import base64
import datetime
import json
import re
from typing import Any

from headrace.connect.plugin import OptionError

VARIABLE = re.compile(r"\$\{([^}]*)\}")


def as_bytes(value: Any) -> bytes:
    """Bytes as they are, a string in UTF-8, everything else as JSON."""
    return value if isinstance(value, bytes) else plain(value).encode()


def plain(value: Any) -> str:
    """A string as it is, everything else as JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """JSON with bytes in base 64, and with times, decimals and everything else as text."""
    return json.dumps(value, default=_other, ensure_ascii=False, separators=(",", ":"))


def _other(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)


def check_variables(option: str, pattern: str) -> None:
    """OptionError unless the only variables are ${topic} and ${key}."""
    for found in VARIABLE.findall(pattern):
        if found not in ("topic", "key"):
            message = f"Unknown variable ${{{found}}}; use ${{topic}} and ${{key}}."
            raise OptionError(option, message)


def filled(pattern: str, topic: str, key: Any) -> str:
    """The pattern with the topic and the key of a record."""
    values = {"topic": topic, "key": "" if key is None else plain(key)}
    return VARIABLE.sub(lambda found: values[found[1]], pattern)
