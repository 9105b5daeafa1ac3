"""The settings of a share group for the delivery of its records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.settings import Settings, group_value

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The config of a group, or the settings of the broker where it has none."""

    lock_ms: int
    max_deliveries: int
    max_locks: int
    reads_committed: bool
    reset: str
    dead_letter_topic: str
    copies_dead_letters: bool
    renews: bool

    @classmethod
    def of(cls, settings: Settings, configs: Mapping[str, str]) -> ShareGroupSettings:
        """The settings of a group with these configs."""

        def number(name: str) -> int:
            value = group_value(settings, configs, name)
            assert isinstance(value, int), name
            return value

        return cls(
            number("share.record.lock.duration.ms"),
            number("share.delivery.count.limit"),
            number("share.partition.max.record.locks"),
            group_value(settings, configs, "share.isolation.level") == "read_committed",
            str(group_value(settings, configs, "share.auto.offset.reset")),
            str(group_value(settings, configs, "errors.deadletterqueue.topic.name")),
            bool(group_value(settings, configs, "errors.deadletterqueue.copy.record.enable")),
            bool(group_value(settings, configs, "share.renew.acknowledge.enable")),
        )


def duration_ms(text: str) -> int:
    """The milliseconds of a duration such as P1DT2H3M4.5S, which is valid."""
    found = _DURATION.fullmatch(text)
    assert found is not None, f"{text} was checked when it was set"
    return sum(
        int(float(number or 0) * unit)
        for number, unit in zip(found.groups(), _UNITS_MS, strict=True)
    )
