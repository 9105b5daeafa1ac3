"""The schemas of the Datagen source's quickstarts, with the field names of Confluent's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A schema with its key."""

    schema: str
    key: str


def _field(name: str, kind: str, **properties: object) -> Mapping[str, object]:
    return {"name": name, "type": {"type": kind, "arg.properties": properties}}


def _range(low: float, high: float) -> Mapping[str, float]:
    return {"min": low, "max": high}


def _quickstart(name: str, key: str, fields: Sequence[Mapping[str, object]]) -> Quickstart:
    return Quickstart(json.dumps({"type": "record", "name": name, "fields": fields}), key)


_TIMES = _range(1487715775521, 1519273364600)
_ADDRESS = {
    "name": "address",
    "type": {
        "type": "record",
        "name": "address",
        "fields": [
            _field("city", "string", regex="City_[1-9]{0,2}"),
            _field("state", "string", regex="State_[1-9]{0,2}"),
            _field("zipcode", "long", range=_range(10000, 99999)),
        ],
    },
}

QUICKSTARTS: Mapping[str, Quickstart] = {
    "users": _quickstart(
        "users",
        "userid",
        [
            _field("registertime", "long", range=_TIMES),
            _field("userid", "string", regex="User_[1-9]"),
            _field("regionid", "string", regex="Region_[1-9]"),
            _field("gender", "string", options=["FEMALE", "MALE", "OTHER"]),
        ],
    ),
    "pageviews": _quickstart(
        "pageviews",
        "viewtime",
        [
            _field("viewtime", "long", iteration={"start": 1, "step": 10}),
            _field("userid", "string", regex="User_[1-9]"),
            _field("pageid", "string", regex="Page_[1-9][0-9]?"),
        ],
    ),
    "orders": _quickstart(
        "orders",
        "orderid",
        [
            _field("ordertime", "long", range=_TIMES),
            _field("orderid", "int", iteration={"start": 0}),
            _field("itemid", "string", regex="Item_[1-9][0-9]{0,2}"),
            _field("orderunits", "double", range=_range(0.1, 10.0)),
            _ADDRESS,
        ],
    ),
    "clickstream": _quickstart(
        "clickstream",
        "ip",
        [
            _field("ip", "string", regex="(111|122|222|233)\\.[1-9]{3}\\.[1-9]{2}\\.[1-9]{2}"),
            _field("userid", "int", range=_range(1, 40)),
            _field("remote_user", "string", options=["-"]),
            _field("time", "string", iteration={"start": 1, "step": 10}),
            _field("_time", "long", iteration={"start": 1, "step": 10}),
            _field(
                "request",
                "string",
                options=[
                    "GET /index.html HTTP/1.1",
                    "GET /images/logo.png HTTP/1.1",
                    "GET /site/login.html HTTP/1.1",
                    "GET /site/orders.html HTTP/1.1",
                    "POST /api/orders HTTP/1.1",
                ],
            ),
            _field("status", "int", options=[200, 302, 404, 405, 406, 407]),
            _field("bytes", "long", options=[278, 1289, 2048, 4096, 4006, 4196, 14096]),
            _field("referrer", "string", options=["-"]),
            _field(
                "agent",
                "string",
                options=[
                    "Mozilla/5.0 (compatible; ExampleBot/2.1)",
                    "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
                    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/140.0",
                ],
            ),
        ],
    ),
    "ratings": _quickstart(
        "ratings",
        "rating_id",
        [
            _field("rating_id", "long", iteration={"start": 1}),
            _field("user_id", "int", range=_range(1, 20)),
            _field("stars", "int", range=_range(1, 5)),
            _field("route_id", "int", range=_range(1, 10000)),
            _field("rating_time", "long", iteration={"start": 1, "step": 12}),
            _field("channel", "string", options=["web", "ios", "android", "ios-test"]),
            _field(
                "message",
                "string",
                options=["on time and friendly", "the seats were narrow", "never again", "great"],
            ),
        ],
    ),
    "stock_trades": _quickstart(
        "stock_trades",
        "symbol",
        [
            _field("side", "string", options=["BUY", "SELL"]),
            _field("quantity", "int", range=_range(1, 5000)),
            _field("symbol", "string", regex="Z[A-E](ZZT|TEST|OLT)"),
            _field("price", "int", range=_range(5, 1000)),
            _field("account", "string", options=["ABC123", "LMN456", "XYZ789"]),
            _field("userid", "string", regex="User_[1-9]"),
        ],
    ),
}
