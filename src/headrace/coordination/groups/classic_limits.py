"""The limits of classic groups, from the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class ClassicLimits:
    """The limits of classic groups."""

    min_session_ms: int
    max_session_ms: int
    initial_delay_ms: int
    max_size: int

    @classmethod
    def of(cls, settings: Settings) -> ClassicLimits:
        """The limits in these settings."""
        return cls(
            settings.integer("group.min.session.timeout.ms"),
            settings.integer("group.max.session.timeout.ms"),
            settings.integer("group.initial.rebalance.delay.ms"),
            settings.integer("group.max.size"),
        )

    def session_allowed(self, session_timeout_ms: int) -> bool:
        """Whether a member may have this session timeout."""
        return self.min_session_ms <= session_timeout_ms <= self.max_session_ms
