"""How much of anything a client may send. Each bounds time or memory of one request."""

SCHEMA_CHARACTERS = 500_000
"""Of a schema's text. It has to fit into one record of the topic, escaped."""

BODY_BYTES = 2_000_000
"""Of a request. More is not read."""

JSON_DEPTH = 128
"""Of objects and arrays in a schema or a body; the parsers below us recurse."""

PROTO_DEPTH = 100
"""Of brackets of any kind in a .proto file; protoc recurses into them without a limit."""

REFERENCES = 200
"""Schemas that one schema needs, directly and through others."""

NEEDED_CHARACTERS = 2_000_000
"""Of a schema and all schemas that it needs."""

COMPARISONS = 200_000
"""Pairs of types that a compatibility check looks at."""

QUICK_CHARACTERS = {"AVRO": 20_000, "JSON": 5_000, "PROTOBUF": 10_000}
"""Of the texts that the event loop works on itself, about ten milliseconds of work by type. More
goes to a process of its own."""

QUICK_COMPARISONS = 5_000
"""Pairs of types that the event loop compares itself."""

WORKERS = 2
"""Processes for large schemas."""

WORK_CPU_SECONDS = 10.0
"""Of one task of such a process."""

WORK_MEMORY_BYTES = 1 << 30
"""Of such a process."""

WAITING_TASKS = 50
"""Of requests that wait for such a process. Each holds its body."""

CHECK_SECONDS = 120.0
"""Of a check against many large versions, each of which is a task."""

BODY_PARTS = 20_000
"""Objects and arrays in a body, apart from those in the text of a schema."""

SLICE = 1_000
"""Entries of a long list that are put together before other requests have their turn."""

PAGE = 1_000_000
"""Entries of an answer where the client asks for all of them."""
