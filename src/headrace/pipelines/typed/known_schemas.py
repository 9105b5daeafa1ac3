"""The schemas that a Spark worker has fetched, by id.

An id always refers to the same schema, so a process requests each once. If the registry does not
respond, the task fails and Spark repeats it, because the record is not at fault. An id that is not
in the registry is an error of the record.
"""

from typing import ClassVar

from headrace.schemas.client import (
    NOT_FOUND_STATUS,
    UNPROCESSABLE_STATUS,
    RequestRefused,
    SchemaClient,
)
from headrace.schemas.formats import FORMATS
from headrace.schemas.interface import RegisteredSchema

CACHED_QUERIES = 32


class KnownSchemas:
    """The schemas of one type that this process has fetched for one query.

    A missing id is not requested again by the same task, but by the next one.
    """

    # A Spark worker outlives its tasks, and so does this cache. It is per query, because another
    # query may have another registry at the same address.
    _of_queries: ClassVar[dict[str, dict[int, RegisteredSchema]]] = {}

    def __init__(self, client: SchemaClient, kind: str, query: str) -> None:
        self._client = client
        self._kind = kind
        self._found = self._of_queries.setdefault(f"{kind} {query}", {})
        while len(self._of_queries) > CACHED_QUERIES:
            del self._of_queries[next(iter(self._of_queries))]
        self._missing: dict[int, str] = {}

    def get(self, schema_id: int) -> RegisteredSchema | str:
        """The schema, or the reason why it is missing."""
        found = self._found.get(schema_id)
        if found is None and schema_id not in self._missing:
            try:
                found = self._found[schema_id] = self._client.by_id(schema_id, self._kind)
            except RequestRefused as error:
                self._missing[schema_id] = self._reason(error, schema_id)
        if found is None:
            return self._missing[schema_id]
        if found.kind != self._kind:
            return f"schema {schema_id} is of type {found.kind}, not {self._kind}"
        return found

    def add(self, schema: RegisteredSchema) -> None:
        """Adds a schema that was fetched elsewhere."""
        self._found[schema.id] = schema

    def _reason(self, error: RequestRefused, schema_id: int) -> str:
        if error.status == NOT_FOUND_STATUS:
            return f"the registry has no schema with id {schema_id}"
        if error.status == UNPROCESSABLE_STATUS and FORMATS[self._kind].readable_form:
            # It was requested in a format that other types do not have.
            return f"schema {schema_id} is not of type {self._kind}"
        raise error
