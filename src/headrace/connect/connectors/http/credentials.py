"""Credentials of the HTTP connectors: none, a login, a token, or OAuth 2.0 client credentials."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.connect.plugin import Option, OptionError, Password, PermanentError

if TYPE_CHECKING:
    from headrace.connect.connectors.http.exchange import HttpRequest, HttpResponse

TYPES = ("NONE", "BASIC", "BEARER", "OAUTH2")
RENEW_EARLIER_S = 30.0
LIFETIME_S = 300.0
"""Of a token whose server does not say it."""

CREDENTIALS = (
    Option("auth.type", str, "NONE", "NONE, BASIC, BEARER or OAUTH2.", importance="high"),
    Option("connection.user", str, "", "The user, for BASIC."),
    Option("connection.password", Password, "", "The password of this user."),
    Option("bearer.token", Password, "", "The token, for BEARER."),
    Option("oauth2.token.url", str, "", "Where tokens are requested, for OAUTH2."),
    Option("oauth2.client.id", str, "", "The client id."),
    Option("oauth2.client.secret", Password, "", "The client secret."),
    Option("oauth2.client.scope", str, "", "The scope of the token."),
    Option(
        "oauth2.client.auth.mode",
        str,
        "header",
        "Where the request of a token has the client id and secret.",
        ("header", "url"),
    ),
    Option("oauth2.token.property", str, "access_token", "The field with the token."),
)

_tokens: dict[tuple[str, ...], tuple[str, float]] = {}
"""The tokens of this process, and until when they are used. Instances of connectors are made for
each task, and must not request a token each."""


class Credentials:
    """What requests to the configured server have in their headers."""

    def __init__(self, values: Mapping[str, object]) -> None:
        text = {name: str(value) for name, value in values.items()}
        self._text = text
        self._type = text["auth.type"].upper()
        if self._type not in TYPES:
            raise OptionError(
                "auth.type",
                f"Invalid value {text['auth.type']} for configuration auth.type: expected one of "
                f"{', '.join(TYPES)}",
            )
        needed = {
            "BASIC": ("connection.user",),
            "BEARER": ("bearer.token",),
            "OAUTH2": ("oauth2.token.url", "oauth2.client.id", "oauth2.client.secret"),
        }
        for option in needed.get(self._type, ()):
            if not text[option]:
                raise OptionError(option, f"auth.type={self._type} needs {option}.")
        if not text["bearer.token"].isprintable() or not text["bearer.token"].isascii():
            raise OptionError("bearer.token", "A token has printable ASCII characters only.")

    @property
    def secrets(self) -> list[str]:
        names = ("connection.password", "bearer.token", "oauth2.client.secret")
        return [self._text[name] for name in names if self._text[name]]

    def headers(self, send: "Callable[[HttpRequest], HttpResponse]") -> dict[str, str]:
        """The header `authorization`; `send` requests a token if there is none."""
        if self._type == "BASIC":
            return _basic(self._text["connection.user"], self._text["connection.password"])
        if self._type == "BEARER":
            return {"authorization": f"Bearer {self._text['bearer.token']}"}
        if self._type == "OAUTH2":
            token, until = _tokens.get(self._key, ("", 0.0))
            if time.monotonic() >= until:
                token = self._requested(send)
            return {"authorization": f"Bearer {token}"}
        return {}

    def forget_token(self) -> bool:
        """The server refuses the token; whether another one can be requested."""
        return _tokens.pop(self._key, None) is not None

    @property
    def _key(self) -> tuple[str, ...]:
        names = ("token.url", "client.id", "client.secret", "client.scope")
        return tuple(self._text[f"oauth2.{name}"] for name in names)

    def _requested(self, send: "Callable[[HttpRequest], HttpResponse]") -> str:
        from headrace.connect.connectors.http.exchange import HttpRequest

        client, secret = self._text["oauth2.client.id"], self._text["oauth2.client.secret"]
        form = {"grant_type": "client_credentials"}
        if self._text["oauth2.client.scope"]:
            form["scope"] = self._text["oauth2.client.scope"]
        headers = {
            "accept": "application/json",
            "content-type": "application/x-www-form-urlencoded",
        }
        if self._text["oauth2.client.auth.mode"] == "header":
            headers |= _basic(client, secret)
        else:
            form |= {"client_id": client, "client_secret": secret}
        answer = send(
            HttpRequest("POST", self._text["oauth2.token.url"], urlencode(form).encode(), headers)
        )
        refused = f"{answer.origin} gives no token: status {answer.status}"
        if not answer.is_success:
            raise ConnectionError(refused) if answer.passes else PermanentError(refused)
        try:
            found = json.loads(answer.body)
            token = found[self._text["oauth2.token.property"]]
            lifetime = float(found.get("expires_in") or LIFETIME_S)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PermanentError(
                f"{answer.origin} gives no token: its answer has no field "
                f"{self._text['oauth2.token.property']} (oauth2.token.property)"
            ) from None
        _tokens[self._key] = str(token), time.monotonic() + lifetime - RENEW_EARLIER_S
        return str(token)


def _basic(user: str, password: str) -> dict[str, str]:
    packed = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {packed}"}
