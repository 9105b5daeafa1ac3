"""A schema registry as tasks and drivers ask it: a schema by its id, the newest one, a new one.

An id means the same schema for ever, so that a process asks once for each. A registry that does not
answer is tried again and then ends the task, which Spark repeats: that says nothing about the
record. An id that the registry does not know does.
"""

import base64
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import quote

from headrace.client.errors import ClientError

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_TIMEOUT_S = 10
TRIES = 4
FIRST_PAUSE_S = 0.2
QUERIES_KEPT = 32
UNKNOWN_STATUS = 404
# A schema that cannot be given in the form that was asked for.
UNPROCESSABLE_STATUS = 422


class RegistryError(ClientError):
    """The registry cannot be asked, or has refused; says where and why."""


class Refused(RegistryError):
    """The registry has understood the request, and says no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Dependency:
    """A schema that another one refers to by this name."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema with all that it refers to, each after what it needs itself."""

    kind: str
    text: str
    dependencies: tuple[Dependency, ...] = ()
    id: int = -1
    version: int = -1


@dataclass(frozen=True, slots=True)
class Registry:
    """Where the registry is; several addresses are tried in turn."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)

    def by_id(self, schema_id: int, kind: str) -> Schema:
        """The schema with this id. Refused where there is none."""
        form = {"format": "serialized"} if kind == "PROTOBUF" else {}
        return self._whole(self.ask("GET", ("schemas", "ids", str(schema_id)), form), schema_id)

    def by_version(self, subject: str, version: str, kind: str) -> Schema:
        """The schema of a subject's version, or of its newest one: `latest`."""
        form = {"format": "serialized"} if kind == "PROTOBUF" else {}
        found = self.ask("GET", ("subjects", subject, "versions", version), form)
        return self._whole(found, int(str(found["id"])))

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id under which the subject has this schema now."""
        body = {"schema": text, "schemaType": kind}
        found = self.ask("POST", ("subjects", subject, "versions"), {}, body)
        return int(str(found["id"]))

    def registered(self, subject: str, kind: str, text: str) -> int:
        """The id under which the subject has this schema already."""
        found = self.ask("POST", ("subjects", subject), {}, {"schema": text, "schemaType": kind})
        return int(str(found["id"]))

    def _whole(self, found: dict[str, object], schema_id: int) -> Schema:
        kind = str(found.get("schemaType") or "AVRO")
        known: dict[str, Dependency] = {}
        self._collect(found, kind, known)
        return Schema(
            kind,
            str(found["schema"]),
            tuple(known.values()),
            schema_id,
            int(str(found.get("version", -1))),
        )

    def _collect(self, found: dict[str, object], kind: str, known: dict[str, Dependency]) -> None:
        references = found.get("references") or []
        form = {"format": "serialized"} if kind == "PROTOBUF" else {}
        for each in references if isinstance(references, list) else []:
            name = str(each["name"])
            if name in known:
                continue
            path = ("subjects", str(each["subject"]), "versions", str(each["version"]))
            target = self.ask("GET", path, form)
            self._collect(target, kind, known)
            known[name] = Dependency(name, str(target["schema"]))

    def ask(
        self, method: str, path: tuple[str, ...], query: dict[str, str], body: object = None
    ) -> dict[str, object]:
        """The answer's object; tried again while nobody answers."""
        pause_s = FIRST_PAUSE_S
        for attempt in range(TRIES):
            reasons = []
            for url in self.urls:
                try:
                    return self._ask(url, method, path, query, body)
                except Refused:
                    raise
                except RegistryError as error:
                    reasons.append(str(error))
            if attempt + 1 < TRIES:
                time.sleep(pause_s)
                pause_s *= 2
        raise RegistryError("; ".join(reasons))

    def _ask(
        self, url: str, method: str, path: tuple[str, ...], query: dict[str, str], body: object
    ) -> dict[str, object]:
        place = "/".join(quote(part, safe="") for part in path)
        words = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        headers = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"}
        if self.user_info is not None:
            packed = base64.b64encode(self.user_info.encode()).decode()
            headers["Authorization"] = f"Basic {packed}"
        request = urllib.request.Request(
            f"{url.rstrip('/')}/{place}{'?' if words else ''}{words}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _refused(url, error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RegistryError(
                f"no schema registry answers at schema.registry.url={url}: {reason}"
            ) from None
        if not isinstance(found, dict):
            raise RegistryError(f"{url} is no schema registry: it answered {str(found)[:100]}")
        return found


def _refused(url: str, error: urllib.error.HTTPError) -> RegistryError:
    try:
        said = str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError, OSError):
        said = str(error.reason)
    text = f"the schema registry at {url} says {error.code}: {said[:500]}"
    if error.code in (401, 403):
        text += "; give schema.registry.basic.auth.user.info=USER:PASSWORD"
    return Refused(error.code, text) if error.code < 500 else RegistryError(text)


class KnownSchemas:
    """The schemas that this process has asked for on behalf of one query, by id, each once.

    What was not found is not asked for again by the same task, and may be by the next one.
    """

    # A worker of Spark's outlives its tasks, and what they have learned stays here. Not longer
    # than a query: another one may mean another registry at the same address.
    _of_queries: ClassVar[dict[str, dict[int, Schema]]] = {}

    def __init__(self, registry: Registry, kind: str, query: str) -> None:
        self._registry = registry
        self._kind = kind
        self._found = self._of_queries.setdefault(f"{kind} {query}", {})
        while len(self._of_queries) > QUERIES_KEPT:
            del self._of_queries[next(iter(self._of_queries))]
        self._missing: dict[int, str] = {}

    def get(self, schema_id: int) -> Schema | str:
        """The schema, or why there is none."""
        found = self._found.get(schema_id)
        if found is None and schema_id not in self._missing:
            try:
                found = self._found[schema_id] = self._registry.by_id(schema_id, self._kind)
            except Refused as error:
                self._missing[schema_id] = self._reason(error, schema_id)
        if found is None:
            return self._missing[schema_id]
        if found.kind != self._kind:
            return f"schema {schema_id} is of type {found.kind}, not {self._kind}"
        return found

    def add(self, schema: Schema) -> None:
        """A schema that somebody else has asked for."""
        self._found[schema.id] = schema

    def _reason(self, error: Refused, schema_id: int) -> str:
        if error.status == UNKNOWN_STATUS:
            return f"the registry knows no schema with id {schema_id}"
        if error.status == UNPROCESSABLE_STATUS and self._kind == "PROTOBUF":
            # It is asked for as a descriptor, which other types do not have.
            return f"schema {schema_id} is not of type PROTOBUF"
        raise error
