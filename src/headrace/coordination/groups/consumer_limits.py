"""The limits of consumer groups, from the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.coordination.groups.assignors import ASSIGNORS, CLASS_NAMES
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """The settings named group.consumer.* that a group has no config for, and the size to which a
    group can be downgraded.
    """

    max_size: int
    max_classic_size: int
    assignors: tuple[str, ...]
    upgrades: bool
    downgrades: bool

    @classmethod
    def of(cls, settings: Settings) -> ConsumerLimits:
        """The limits in these settings; an empty list of assignors means the first one."""
        named = settings.words("group.consumer.assignors")
        policy = settings.text("group.consumer.migration.policy").lower()
        return cls(
            settings.integer("group.consumer.max.size"),
            settings.integer("group.max.size"),
            tuple(CLASS_NAMES.get(one, one) for one in named) or tuple(ASSIGNORS)[:1],
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
