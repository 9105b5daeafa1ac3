"""Limits on requests. Each bounds the time or memory that one request can use."""

SCHEMA_CHARACTERS = 500_000
"""Characters of a schema's text. The JSON-escaped text must fit into one record of the topic."""

BODY_BYTES = 2_000_000
"""Bytes of a request body. The rest is not read."""

REFERENCES = 200
"""Direct and indirect references of one schema."""

NEEDED_CHARACTERS = 2_000_000
"""Characters of a schema and all its direct and indirect references."""

QUICK_COMPARISONS = 5_000
"""Pairs of types that are compared in the event loop. A worker process compares more:
`headrace.schemas.comparison.COMPARED_PAIRS`."""

WORKERS = 2
"""Worker processes for large schemas."""

WORK_CPU_SECONDS = 10.0
"""CPU time of one task in a worker process."""

WORK_MEMORY_BYTES = 1 << 30
"""Memory of a worker process."""

WAITING_TASKS = 50
"""Requests that wait for a worker process. Each holds its body in memory."""

CHECK_SECONDS = 120.0
"""Total time of a check against many large versions, each of which is a task."""

PAGE = 1_000_000
"""Most entries of a response, if the client sets no limit."""
