"""What the service tells a new driver process."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SqlDriverSettings:
    """Sent as the first message, because arguments of a process are visible to others."""

    bootstrap: str
    client: Mapping[str, str] = field(repr=False)
    """Properties of the Kafka client, `bootstrap.servers` and logins included."""
    folder: str
    """Where the checkpoints are."""
    processing_log: str
    """The topic for records that cannot be read. It is created with the first of them."""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`schema.registry.url` and its login, as the Spark source has them; empty without one."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    master: str = "local[4,4]"
    allows_functions: bool = False

    def query_folder(self, query: str) -> Path:
        """The folder of a query, with a checkpoint for each generation.

        An id may have any characters; other folders must not be reached.
        """
        plain = re.sub(r"[^\w.-]", lambda found: f"={ord(found[0]):x}=", query)
        return Path(self.folder) / (plain if plain.strip(".") else plain.replace(".", "=2e="))

    def checkpoint(self, query: str, generation: int) -> Path:
        return self.query_folder(query) / str(generation)

    def kafka_options(self) -> dict[str, str]:
        """The client as options of Spark's source and sink."""
        return {f"kafka.{name}": value for name, value in self.client.items()}
