"""What the service tells a new driver process."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Sent as the first message, because arguments of a process are visible to others."""

    bootstrap: str
    client: Mapping[str, str] = field(repr=False)
    """Properties of the Kafka client, `bootstrap.servers` and logins included."""
    offsets_topic: str
    folder: str
    """Where the checkpoints are."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    master: str = "local[4,4]"
    secrets: Mapping[str, Any] = field(default_factory=dict)
    """Which references to secrets are resolved: the fields of SecretSources."""
    tracing: bool = False
    """Whether epochs have spans of OpenTelemetry."""

    def connector_folder(self, name: str) -> Path:
        """The folder of a connector, with its checkpoints.

        A name may have slashes, or be that of a parent folder; other folders must not be reached.
        """
        plain = re.sub(r"[^\w.-]", lambda found: f"={ord(found[0]):x}=", name)
        return Path(self.folder) / (plain if plain.strip(".") else plain.replace(".", "=2e="))

    def spool(self, name: str) -> Path:
        """The folder for messages that a push source has received; all checkpoints share it."""
        return self.connector_folder(name) / "spool"

    def letter_run(self, name: str) -> Path:
        """The file with the state of the newest run over a connector's dead letters."""
        return self.connector_folder(name) / "dead-letters.json"

    def tracing_options(self) -> dict[str, str]:
        """The option of Spark's source and sink for spans of epochs."""
        return {"tracing": "true"} if self.tracing else {}

    def kafka_options(self) -> dict[str, str]:
        """The client as options of Spark's source and sink."""
        return {f"kafka.{name}": value for name, value in self.client.items()}
