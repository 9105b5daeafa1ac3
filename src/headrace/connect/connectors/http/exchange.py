"""Requests of the HTTP connectors: options of the connection, redirects, and errors.

Messages name the server and never the path, the query or a header, because any of these may be
a secret. Credentials and configured headers are sent to the host of the configured address only.
"""

import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from headrace.connect.connectors.http.credentials import CREDENTIALS, Credentials
from headrace.connect.plugin import Option, OptionError, Password, PermanentError, parse

if TYPE_CHECKING:
    import httpx

MOST_REDIRECTS = 5
MOST_ANSWER_BYTES = 64 * 1024 * 1024
SHOWN_CHARACTERS = 200
"""How much of the body of an error is shown."""
LOOKED_AT_BYTES = 65_536
"""More than is shown, so that no half of a secret is."""
REDIRECTS = (301, 302, 303, 307, 308)
PASSING = (408, 425, 429)
"""Client errors that go away by themselves, as all server errors (5xx) do."""

CONNECTION = (
    *CREDENTIALS,
    Option("http.connect.timeout.ms", int, 30_000, "How long a connection may take to open."),
    Option("http.request.timeout.ms", int, 30_000, "How long a response may take."),
    Option("http.proxy.host", str, "", "A proxy for all requests."),
    Option("http.proxy.port", int, 0, "Its port."),
    Option("http.proxy.user", str, "", "Its user."),
    Option("http.proxy.password", Password, "", "The password of this user."),
    Option(
        "https.ssl.truststore.location",
        str,
        "",
        "A PEM file with the trusted CA certificates; by default those of the system.",
    ),
    Option(
        "https.ssl.keystore.location",
        str,
        "",
        "A PEM file with the certificate of the client and its key.",
    ),
    Option("https.ssl.key.password", Password, "", "The password of this key."),
)
IGNORED = (
    "confluent.license",
    "confluent.topic",
    "confluent.topic.bootstrap.servers",
    "confluent.topic.replication.factor",
    "confluent.topic.security.protocol",
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request before credentials are added."""

    method: str
    url: str = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, read completely."""

    status: int
    headers: "httpx.Headers"
    body: bytes = field(repr=False)
    origin: str
    """The server that sent it."""
    redirected: bool = False
    """Whether it is from another server than the configured one, without credentials."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in PASSING or self.status >= 500

    def retry_after_s(self) -> float | None:
        """The pause that the server asks for."""
        text = self.headers.get("retry-after", "").strip()
        if text.isdecimal():
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, TypeError):
            return None


class HttpExchange:
    """Sends requests over connections that stay open. One thread uses it."""

    def __init__(self, config: Mapping[str, str]) -> None:
        """OptionError for an option of the connection that cannot work."""
        values = {each.name: parse(each, config.get(each.name)) for each in CONNECTION}
        self._credentials = Credentials(values)
        self._connect_s = int(str(values["http.connect.timeout.ms"])) / 1000
        self._request_s = int(str(values["http.request.timeout.ms"])) / 1000
        self._proxy = _proxy_url(values)
        self._tls = _tls(values)
        self._hidden = [str(values["http.proxy.password"]), *self._credentials.secrets]
        self._client: httpx.Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def hide(self, secrets: Iterable[str]) -> None:
        """More texts that messages must not show."""
        self._hidden += secrets

    def send(self, request: HttpRequest) -> HttpResponse:
        """The response, whatever its status. ConnectionError if there is none."""
        answer = self._followed(request)
        if answer.status == 401 and self._credentials.forget_token():
            answer = self._followed(request)
        return answer

    def check_reachable(self, url: str) -> None:
        """Opens a connection to the server of an address; any response will do."""
        self._one(HttpRequest("HEAD", f"{origin(url)}/"), {}, False)

    def refuse(self, answer: HttpResponse) -> NoReturn:
        """Raises the error of a response without success."""
        if answer.passes:
            raise ConnectionError(self.sentence(answer))
        raise PermanentError(self.sentence(answer))

    def sentence(self, answer: HttpResponse) -> str:
        """What the server said, without secrets."""
        text = " ".join(answer.body[:LOOKED_AT_BYTES].decode("utf-8", "replace").split())
        for secret in filter(None, self._hidden):
            text = text.replace(secret, "[hidden]")
        found = f"{answer.origin} answered with status {answer.status}"
        if text:
            found += f": {text[:SHOWN_CHARACTERS]}"
        if answer.redirected and answer.status in (401, 403):
            found += " (the request was redirected to this server, and sent without credentials)"
        return found

    def _followed(self, request: HttpRequest) -> HttpResponse:
        trusted = True
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._one(request, self._headers(request, trusted), trusted)
            location = answer.headers.get("location")
            if answer.status not in REDIRECTS or not location:
                return answer
            if request.method != "GET" and answer.status not in (307, 308):
                raise PermanentError(
                    f"{answer.origin} redirects {request.method} with status {answer.status}, "
                    "which would lose the body; configure the address to which it redirects"
                )
            target = _joined(answer, request.url, location)
            is_other = origin(target) != origin(request.url)
            if is_other and request.body is not None:
                raise PermanentError(
                    f"{answer.origin} redirects {request.method} to {origin(target)}, to which the "
                    "body is not sent; configure this address"
                )
            trusted = trusted and not is_other
            request = HttpRequest(request.method, target, request.body, request.headers)
        raise PermanentError(f"{answer.origin} redirects more than {MOST_REDIRECTS} times")

    def _headers(self, request: HttpRequest, trusted: bool) -> dict[str, str]:
        """A request to another server has only the headers that describe its body."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        if trusted:
            return headers | self._credentials.headers(self._send_for_token)
        return {name: headers[name] for name in ("accept", "content-type") if name in headers}

    def _send_for_token(self, request: HttpRequest) -> HttpResponse:
        """The request has credentials of its own, so that redirects are not followed."""
        return self._one(request, request.headers, True)

    def _one(self, request: HttpRequest, headers: Mapping[str, str], trusted: bool) -> HttpResponse:
        import httpx

        server = origin(request.url)
        end = time.monotonic() + self._request_s
        try:
            with self._open().stream(
                request.method, request.url, content=request.body, headers=headers
            ) as response:
                body = self._read(response, server, end)
        except httpx.TimeoutException:
            raise ConnectionError(f"{server} did not answer in time") from None
        except httpx.InvalidURL as error:
            raise PermanentError(f"an address of {server} is invalid: {error}") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise PermanentError(
                    f"the certificate of {server} is not trusted: {error}"
                ) from None
            reason = str(error) or type(error).__name__
            raise ConnectionError(f"{server} cannot be reached: {reason}") from None
        return HttpResponse(response.status_code, response.headers, body, server, not trusted)

    def _read(self, response: "httpx.Response", server: str, end: float) -> bytes:
        found = bytearray()
        for chunk in response.iter_bytes():
            found += chunk
            if len(found) > MOST_ANSWER_BYTES:
                raise PermanentError(f"{server} answered with more than {MOST_ANSWER_BYTES} bytes")
            if time.monotonic() > end:
                raise ConnectionError(f"{server} did not answer in time")
        return bytes(found)

    def _open(self) -> "httpx.Client":
        import httpx

        if self._client is None:
            # Their log lines contain addresses and headers.
            for name in ("httpx", "httpcore"):
                logging.getLogger(name).setLevel(logging.WARNING)
            self._client = httpx.Client(
                timeout=httpx.Timeout(self._request_s, connect=self._connect_s),
                verify=self._tls or ssl.create_default_context(),
                proxy=self._proxy,
                # No proxies and logins of the environment: the configuration does not show them.
                trust_env=False,
            )
        return self._client


def origin(url: str) -> str:
    """The server of an address, as messages show it: scheme, host and port."""
    import httpx

    try:
        found = httpx.URL(url)
    except httpx.InvalidURL:
        return "the server"
    port = f":{found.port}" if found.port is not None else ""
    host = f"[{found.host}]" if ":" in found.host else found.host
    return f"{found.scheme}://{host}{port}"


def _joined(answer: HttpResponse, url: str, location: str) -> str:
    """The address of a redirect."""
    import httpx

    found = httpx.URL(url).join(location)
    if found.scheme not in ("http", "https") or not found.host:
        raise PermanentError(f"{answer.origin} redirects to something that is not HTTP")
    return str(found)


def check_url(option: str, url: str) -> None:
    """OptionError unless it is an address of HTTP."""
    import httpx

    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise OptionError(option, f"{option} is not a URL: {error}") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise OptionError(
            option, f"Expected an address such as https://example.com/items in {option}."
        )


def header_lines(option: str, text: str, separator: str) -> dict[str, str]:
    """Headers from `Name: value|Name: value`; OptionError, which does not show values."""
    found = {}
    for line in filter(None, map(str.strip, text.split(separator) if separator else [text])):
        name, colon, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not colon or not plain or not value.isprintable() or not value.isascii():
            raise OptionError(
                option, f"Expected headers such as `Accept: application/json` in {option}, with "
                f"{separator} between them."
            )  # fmt: skip
        found[name] = value
    return found


def one_of(option: str, text: str, *known: str) -> str:
    """The value in upper case; OptionError if it is not known."""
    if text.upper() not in known:
        raise OptionError(
            option,
            f"Invalid value {text} for configuration {option}: expected one of {', '.join(known)}",
        )
    return text.upper()


def _proxy_url(values: Mapping[str, object]) -> str | None:
    host, port = str(values["http.proxy.host"]), values["http.proxy.port"]
    if not host:
        return None
    if not port:
        raise OptionError("http.proxy.port", "http.proxy.host needs a port.")
    user = quote(str(values["http.proxy.user"]), safe="")
    login = f"{user}:{quote(str(values['http.proxy.password']), safe='')}@" if user else ""
    return f"http://{login}{host}:{port}"


def _tls(values: Mapping[str, object]) -> ssl.SSLContext | None:
    trusted = str(values["https.ssl.truststore.location"])
    own = str(values["https.ssl.keystore.location"])
    if not trusted and not own:
        return None
    option = "https.ssl.truststore.location"
    try:
        context = ssl.create_default_context(cafile=trusted or None)
        if own:
            option = "https.ssl.keystore.location"
            context.load_cert_chain(own, password=str(values["https.ssl.key.password"]))
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else "it is no PEM file"
        raise OptionError(option, f"{option} cannot be used: {reason}.") from None
    return context
