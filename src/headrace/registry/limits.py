"""How much of anything a client may send. Each bounds time or memory of one request."""

SCHEMA_CHARACTERS = 500_000
"""Of a schema's text. It has to fit into one record of the topic, escaped."""

BODY_BYTES = 2_000_000
"""Of a request. More is not read."""

JSON_DEPTH = 128
"""Of objects and arrays in a schema or a body; the parsers below us recurse."""

REFERENCES = 200
"""Schemas that one schema needs, directly and through others."""

COMPARISONS = 200_000
"""Pairs of types that a compatibility check looks at."""

PAGE = 1_000_000
"""Entries of an answer where the client asks for all of them."""
