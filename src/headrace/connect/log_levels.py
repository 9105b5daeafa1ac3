"""The levels of loggers, with the names that Java has for them."""

import logging
import time
from weakref import WeakKeyDictionary

LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}
_modified: "WeakKeyDictionary[logging.Logger, int]" = WeakKeyDictionary()


def all_levels() -> dict[str, object]:
    """Loggers with a level of their own."""
    found = {
        name: logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET
    }
    return {name: _level_json(found[name]) for name in sorted(found)}


def level_of(name: str) -> object | None:
    """The level of a logger; None if there is no such logger."""
    found = logging.getLogger() if name == "root" else logging.root.manager.loggerDict.get(name)
    return _level_json(found) if isinstance(found, logging.Logger) else None


def set_level(name: str, level: str) -> list[str]:
    """Set the level of a logger and of those below it; their names."""
    wanted = LEVELS[level.upper()]
    top = logging.getLogger() if name == "root" else logging.getLogger(name)
    below = [
        logger
        for other, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and other.startswith(f"{name}.")
    ]
    for logger in (top, *below):
        logger.setLevel(wanted)
        _modified[logger] = int(time.time() * 1000)
    return sorted(logger.name for logger in (top, *below))


def _level_json(logger: logging.Logger) -> dict[str, object]:
    number = logger.getEffectiveLevel()
    name = min(LEVELS, key=lambda each: abs(LEVELS[each] - number))
    return {"level": name, "last_modified": _modified.get(logger)}
