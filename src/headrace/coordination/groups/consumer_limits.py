"""What the broker's settings say about consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.coordination.groups.assignors import ASSIGNORS, CLASS_NAMES
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """The settings named group.consumer.*, and the size to which a group can be downgraded."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    max_classic_size: int
    assignors: tuple[str, ...]
    upgrades: bool
    downgrades: bool

    @classmethod
    def of(cls, settings: Settings) -> ConsumerLimits:
        """As the settings say; SettingError if they name an assignor that is not here."""
        policy = settings.text("group.consumer.migration.policy").lower()
        return cls(
            settings.integer("group.consumer.session.timeout.ms"),
            settings.integer("group.consumer.heartbeat.interval.ms"),
            settings.integer("group.consumer.max.size"),
            settings.integer("group.max.size"),
            tuple(map(_assignor, settings.words("group.consumer.assignors"))),
            policy in ("bidirectional", "upgrade"),
            policy in ("bidirectional", "downgrade"),
        )

    def check_assignor(self, name: str) -> None:
        """UNSUPPORTED_ASSIGNOR if this one is not configured."""
        if name not in self.assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {name} is not supported. Supported assignors: "
                f"{', '.join(self.assignors)}.",
            )


def _assignor(name: str) -> str:
    short = CLASS_NAMES.get(name, name)
    if short not in ASSIGNORS:
        raise SettingError(
            f"group.consumer.assignors names '{name}'; known are {', '.join(ASSIGNORS)}"
        )
    return short
