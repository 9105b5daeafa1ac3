"""One HTTP request as the handlers see it: names from the path, options from the query, a body."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headrace.registry import failures, limits, names
from headrace.registry.formats.json_text import BadJson, parse_json
from headrace.registry.service import Registry

T = TypeVar("T")
HIGHEST = 2**31 - 1


class Call:
    """What a client asks."""

    __slots__ = ("_body", "_context", "_path", "_query", "registry")

    def __init__(
        self,
        registry: Registry,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        body: bytes,
        context: str | None,
    ) -> None:
        self.registry = registry
        self._path = path
        self._query = query
        self._body = body
        self._context = context

    # ------------------------------------------------------------------------------- the path

    @property
    def subject(self) -> str:
        """The subject that the path names, in the context that the path names before it."""
        return names.check_subject(self._in_context(self._path["subject"]))

    @property
    def scope(self) -> str | None:
        """A subject or a context whose settings are meant; None for the global ones."""
        name = self._path.get("subject")
        if name is None:
            if self._context in (None, names.DEFAULT_CONTEXT):
                return None
            return names.join(str(self._context), "")
        name = self._in_context(name)
        if name in (":.:", ":.__GLOBAL:"):
            return None
        return names.check_subject(name, context_alone=True)

    def _in_context(self, name: str) -> str:
        if self._context is None or name.startswith(":."):
            return name
        return names.join(self._context, name)

    @property
    def context(self) -> str:
        """The context in which an id is meant: that of the path, or of the subject in the query."""
        if self._context is not None:
            return self._context
        subject = self.text("subject")
        return names.context_of(subject) if subject else names.DEFAULT_CONTEXT

    @property
    def version(self) -> int:
        """The version in the path; -1 for the latest."""
        text = self._path["version"]
        if text in ("latest", "-1"):
            return -1
        if not _is_number(text) or not 1 <= int(text) <= HIGHEST:
            raise failures.invalid_version(text[:50])
        return int(text)

    @property
    def schema_id(self) -> int:
        text = self._path["id"]
        if not _is_number(text) or int(text) > HIGHEST:
            raise failures.RegistryError(404, f"{text[:50]!r} is no schema id")
        return int(text)

    def name(self, part: str) -> str:
        """Any other part of the path."""
        return self._path[part]

    # ------------------------------------------------------------------------------ the query

    def flag(self, name: str) -> bool:
        return self.text(name).lower() in ("true", "") if name in self._query else False

    def text(self, name: str, default: str = "") -> str:
        found = self._query.get(name)
        return found[0] if found else default

    def texts(self, name: str) -> Sequence[str]:
        return self._query.get(name, ())

    def subject_prefix(self, default: str) -> str:
        """The prefix of subjects to list, in the path's context."""
        prefix = self.text("subjectPrefix", default)
        if self._context is None or prefix.startswith((":.", ":*:")):
            return names.join(self._context, "") if self._context and prefix == ":*:" else prefix
        return names.join(self._context, prefix)

    def page(self, found: Sequence[T]) -> list[T]:
        """The part of a list that the client wants."""
        offset = self._number("offset", 0)
        limit = self._number("limit", -1)
        if limit < 0:
            limit = limits.PAGE
        return list(found[max(offset, 0) : max(offset, 0) + limit])

    def _number(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not _is_number(text.removeprefix("-")):
            raise failures.unprocessable(f"The parameter {name} must be a whole number")
        return int(text)

    # ------------------------------------------------------------------------------- the body

    def json(self) -> object:
        """The body; RegistryError 400 where it is no JSON."""
        try:
            return parse_json(self._body.decode(), limits.BODY_PARTS)
        except UnicodeDecodeError:
            raise failures.bad_request("The body is not UTF-8") from None
        except BadJson as error:
            raise failures.bad_request(f"The body is not JSON: {error}") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
