"""The client of schema registries: Headrace's, Confluent's, and others with the same HTTP API.

The command line and Spark use it. It can be sent to Spark's tasks; each request opens its own
connection.
"""

import base64
import functools
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from headrace.client.errors import ClientError
from headrace.schemas.formats import FORMATS
from headrace.schemas.interface import RegisteredSchema, SchemaDependency

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_TIMEOUT_S = 10.0
ATTEMPTS = 4
FIRST_PAUSE_S = 0.2
NOT_FOUND_STATUS = 404
UNPROCESSABLE_STATUS = 422
"""The HTTP status if a schema does not have the requested format."""


class SchemaRegistryError(ClientError):
    """The registry does not respond, or responds with an error."""

    def __init__(self, message: str, status: int = 0, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; 0 without a response."""
        self.code = code
        """The registry's own code; the HTTP status if the response has none."""
        self.reason = reason
        """The registry's own message, if there is one."""


class RequestRefused(SchemaRegistryError):
    """The registry refuses the request. A retry would not help."""


@dataclass(frozen=True, slots=True)
class SchemaClient:
    """The addresses and credentials of a registry. Several URLs are tried in turn."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    """USER:PASSWORD for Basic authentication; by default those in the URL, if any."""
    ca_file: str | None = None
    """Trusted CA certificates (PEM); by default those of the system."""
    timeout_s: float = ANSWER_TIMEOUT_S
    token: str | None = field(default=None, repr=False)
    """A bearer token, instead of user and password."""
    certificate_file: str | None = None
    """Certificate and private key (PEM) of this client, if the registry requires one."""
    attempts: int = ATTEMPTS
    """How often all URLs are tried, with pauses in between."""

    def by_id(self, schema_id: int, kind: str | None = None) -> RegisteredSchema:
        """The schema with this id, in the format that values need. A known type saves a
        request."""
        return self._schema(("schemas", "ids", str(schema_id)), kind, schema_id)

    def by_version(self, subject: str, version: str, kind: str | None = None) -> RegisteredSchema:
        """The schema of a version of a subject: a number or `latest`."""
        return self._schema(("subjects", subject, "versions", version), kind)

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema as a version of the subject; returns its id."""
        return self._id(("subjects", subject, "versions"), {"schema": text, "schemaType": kind})

    def registered(self, subject: str, kind: str, text: str) -> int:
        """The id of this schema, which must be a version of the subject."""
        return self._id(("subjects", subject), {"schema": text, "schemaType": kind})

    # --------------------------------------------------------------------- requests of any kind

    def get(self, *path: str, **query: object) -> object:
        return self._request("GET", path, query)

    def post(self, *path: str, body: object, **query: object) -> object:
        return self._request("POST", path, query, body)

    def put(self, *path: str, body: object) -> object:
        return self._request("PUT", path, {}, body)

    def delete(self, *path: str, **query: object) -> object:
        return self._request("DELETE", path, query)

    # --------------------------------------------------------------------------------- schemas

    def _id(self, path: tuple[str, ...], body: object) -> int:
        return int(str(_as_object(self.post(*path, body=body))["id"]))

    def _schema(
        self, path: tuple[str, ...], kind: str | None, schema_id: int | None = None
    ) -> RegisteredSchema:
        found = _as_object(self.get(*path, **_form(kind)))
        actual = str(found.get("schemaType") or "AVRO")
        if kind is None and _form(actual):
            found = _as_object(self.get(*path, **_form(actual)))
        known: dict[str, SchemaDependency] = {}
        self._collect(found, actual, known)
        return RegisteredSchema(
            actual,
            str(found["schema"]),
            tuple(known.values()),
            int(str(found["id"])) if schema_id is None else schema_id,
            int(str(found.get("version", -1))),
        )

    def _collect(
        self, found: Mapping[str, object], kind: str, known: dict[str, SchemaDependency]
    ) -> None:
        """Add the references of a schema, each after its own references."""
        references = found.get("references") or []
        for each in references if isinstance(references, list) else []:
            name = str(each["name"])
            if name in known:
                continue
            path = ("subjects", str(each["subject"]), "versions", str(each["version"]))
            target = _as_object(self.get(*path, **_form(kind)))
            self._collect(target, kind, known)
            known[name] = SchemaDependency(name, str(target["schema"]))

    # -------------------------------------------------------------------------------- requests

    def _request(
        self, method: str, path: tuple[str, ...], query: Mapping[str, object], body: object = None
    ) -> object:
        """The response; retried while no registry responds."""
        pause_s = FIRST_PAUSE_S
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(pause_s)
                pause_s *= 2
            errors = []
            for url in self.urls:
                try:
                    return self._ask(url, method, path, query, body)
                except RequestRefused:
                    raise
                except SchemaRegistryError as error:
                    errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise SchemaRegistryError("; ".join(map(str, errors)))

    def _ask(
        self,
        url: str,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, object],
        body: object,
    ) -> object:
        shown, user_info = _without_user_info(url)
        headers = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif (given := self.user_info or user_info) is not None:
            packed = base64.b64encode(given.encode()).decode()
            headers["Authorization"] = f"Basic {packed}"
        place = "/".join(quote(part, safe="") for part in path)
        words = "&".join(f"{name}={quote(_word(value))}" for name, value in query.items())
        request = urllib.request.Request(
            f"{shown}/{place}{'?' if words else ''}{words}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        context = None
        if shown.startswith("https:"):
            context = _tls_context(self.ca_file, self.certificate_file)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s, context=context) as answer:
                found: object = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            raise _failed(shown, error) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or reason
            raise SchemaRegistryError(f"no schema registry responds at {shown}: {text}") from None
        except ValueError:
            raise SchemaRegistryError(
                f"{shown} is not a schema registry: its response is not JSON"
            ) from None


def split_urls(text: str) -> tuple[str, ...]:
    """The URLs of a comma-separated list."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def _form(kind: str | None) -> dict[str, object]:
    """The query for a schema's text in the format that its values need."""
    found = FORMATS.get(kind or "")
    return {"format": found.readable_form} if found is not None and found.readable_form else {}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_user_info(url: str) -> tuple[str, str | None]:
    """The URL without user and password, and both as USER:PASSWORD."""
    parts = urlsplit(url)
    user_info, at, host = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=host).geturl().rstrip("/")
    return shown, unquote(user_info) if at else None


@functools.cache
def _tls_context(ca_file: str | None, certificate_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ClientError(
            f"the CA file {ca_file} of the schema registry cannot be used: "
            f"{error.strerror or error}; expected certificates in PEM form"
        ) from None
    if certificate_file is not None:
        try:
            context.load_cert_chain(certificate_file, password=lambda: "")
        except OSError as error:
            raise ClientError(
                f"the certificate file {certificate_file} for the schema registry cannot be used: "
                f"{error.strerror or error}; expected a private key without a password and its "
                "certificates in PEM form"
            ) from None
    return context


def _failed(url: str, error: urllib.error.HTTPError) -> SchemaRegistryError:
    code, reason = error.code, ""
    try:
        body = json.loads(error.read())
        code, reason = int(body["error_code"]), str(body["message"])
    except (ValueError, KeyError, TypeError, OSError):
        pass
    text = f"the schema registry at {url} returned {error.code}: {(reason or error.reason)[:500]}"
    if error.code in (401, 403):
        text += (
            "; check user and password (schema.registry.basic.auth.user.info=USER:PASSWORD), or "
            "the token (schema.registry.bearer.auth.token)"
        )
    kind = RequestRefused if error.code < 500 else SchemaRegistryError
    return kind(text, error.code, code, reason)


def _as_object(answer: object) -> dict[str, object]:
    if not isinstance(answer, dict):
        raise SchemaRegistryError(
            f"not a response of a schema registry, which is an object: {str(answer)[:100]}"
        )
    return answer
