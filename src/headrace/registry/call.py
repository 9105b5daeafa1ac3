"""A request to the registry: the chassis's request with the names of the registry's paths."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headrace.registry import failures, limits, names
from headrace.registry.service import Registry
from headrace.service.request import Request

T = TypeVar("T")
HIGHEST = 2**31 - 1


class Call(Request):
    """A request with the registry's names: subject, context, version, schema id."""

    __slots__ = ("_context", "registry")

    def __init__(
        self,
        registry: Registry,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(method, path, query, headers)
        self.registry = registry
        named = path.get("context")
        self._context = None if named is None else names.context_name(named)

    # ------------------------------------------------------------------------------- the path

    @property
    def subject(self) -> str:
        """The subject in the path, in the context in the path, if any."""
        return names.check_subject(self._in_context(self.path["subject"]))

    @property
    def scope(self) -> str | None:
        """The subject or context of a settings request; None for the global settings."""
        name = self.path.get("subject")
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
        """The context of an id: that of the path, or of the subject in the query."""
        if self._context is not None:
            return self._context
        subject = self.text("subject")
        return names.context_of(subject) if subject else names.DEFAULT_CONTEXT

    @property
    def version(self) -> int:
        """The version in the path; -1 for the latest."""
        text = self.path["version"]
        if text in ("latest", "-1"):
            return -1
        if not _is_number(text) or not 1 <= int(text) <= HIGHEST:
            raise failures.invalid_version(text[:50])
        return int(text)

    @property
    def schema_id(self) -> int:
        text = self.path["id"]
        if not _is_number(text) or int(text) > HIGHEST:
            raise failures.RegistryError(404, f"{text[:50]!r} is not a schema id")
        return int(text)

    def name(self, part: str) -> str:
        """Any other part of the path."""
        return self.path[part]

    # ------------------------------------------------------------------------------ the query

    def subject_prefix(self, default: str) -> str:
        """The prefix of subjects to list, in the path's context."""
        prefix = self.text("subjectPrefix", default)
        if self._context is None or prefix.startswith((":.", ":*:")):
            return names.join(self._context, "") if self._context and prefix == ":*:" else prefix
        return names.join(self._context, prefix)

    def page(self, found: Sequence[T]) -> list[T]:
        """The requested page of a list."""
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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
