"""What a connector does with records that it cannot process: the options `errors.*`."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.connect.plugin import DEAD_LETTERS


@dataclass(frozen=True, slots=True)
class ErrorHandling:
    """The options of a connector, with Kafka Connect's defaults."""

    tolerant: bool = False
    """Whether the connector continues without records that fail."""
    topic: str | None = None
    """Where these records are kept; only with tolerance."""
    has_headers: bool = False
    """Whether dead letters have headers about their origin and error."""
    logs: bool = False
    logs_positions: bool = False
    replication_factor: int = 3

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "ErrorHandling":
        """From the configuration of a connector."""
        tolerant = config.get("errors.tolerance", "none") == "all"
        return cls(
            tolerant,
            (config.get(DEAD_LETTERS) or None) if tolerant else None,
            _flag(config, "errors.deadletterqueue.context.headers.enable"),
            _flag(config, "errors.log.enable"),
            _flag(config, "errors.log.include.messages"),
            int(config.get("errors.deadletterqueue.topic.replication.factor") or 3),
        )


def _flag(config: Mapping[str, str], name: str) -> bool:
    return config.get(name, "false").strip().lower() == "true"
