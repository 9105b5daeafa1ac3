"""The loggers of this broker and their levels, under Kafka's names.

DescribeConfigs and IncrementalAlterConfigs use it. A level lasts until the broker stops.
"""

import logging
from collections.abc import Iterable

from headrace.cluster.controller import ConfigChange, Operation
from headrace.errors import ErrorCode, KafkaError

ROOT = "root"
OURS = "headrace"
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def levels() -> dict[str, str]:
    """The effective level of each of our loggers, and of the root logger."""
    known = logging.root.manager.loggerDict
    names = [name for name in known if name == OURS or name.startswith(f"{OURS}.")]
    shown = {ROOT: _name(logging.root.getEffectiveLevel())}
    for name in sorted({OURS, *names}):
        shown[name] = _name(logging.getLogger(name).getEffectiveLevel())
    return shown


def alter(changes: Iterable[ConfigChange], *, validate_only: bool) -> None:
    """Set levels, or reset them to the parent's level; KafkaError if a change is not valid."""
    changes = tuple(changes)
    known = levels()
    for change in changes:
        _check(change, known)
    if validate_only:
        return
    for change in changes:
        logger = logging.getLogger(None if change.name == ROOT else change.name)
        given = change.operation is Operation.SET and change.value
        logger.setLevel(LEVELS[given] if given else logging.NOTSET)


def _check(change: ConfigChange, known: Iterable[str]) -> None:
    if change.operation not in (Operation.SET, Operation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{change.operation.name} is not supported for the level of a logger",
        )
    if change.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation is Operation.DELETE and change.name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the level of the {ROOT} logger cannot be deleted; use SET"
        )
    if change.operation is Operation.SET and change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{change.name}={change.value}: expected one of {', '.join(LEVELS)}",
        )


def _name(level: int) -> str:
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
