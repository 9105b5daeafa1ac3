"""Options of the commands that start a process: `serve`, `console` and `registry serve`.

These commands do not use Typer, because importing Typer takes longer than their start. Each has a
table of options, which is parsed here; `option_help.py` makes the help page and the completion from
the same table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.cli.failures import bad_usage

DEFAULT_BOOTSTRAP = "localhost:9092"
CLUSTER_PANEL = "Cluster and output"
"""The heading of the options that select the cluster, on the help pages of all commands."""


class CommandOption(NamedTuple):
    """One option, for both parsers."""

    flag: str
    metavar: str
    """Empty: the option is a switch and has no value."""
    text: str
    short: str = ""
    env: str = ""
    default: str | None = None
    shown_default: str = ""
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    panel: str = ""
    """The heading on the help page; empty for the usual one."""

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


class ProcessCommand(NamedTuple):
    """A command that starts a process."""

    words: tuple[str, ...]
    """Such as `registry serve`."""
    summary: str
    details: str
    examples: tuple[str, ...]
    options: tuple[CommandOption, ...]
    start: Callable[[list[str]], int]
    """Runs the process with the words after those of the command; returns the exit code."""


class GivenOptions:
    """The values of the options: from the command line, else the environment, else the table."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def one(self, flag: str) -> str:
        """The value of an option; empty if there is none."""
        return self._values[flag][0]

    def all(self, flag: str) -> list[str]:
        """The values of an option that may be repeated."""
        return [value for value in self._values[flag] if value]

    def switched(self, flag: str) -> bool:
        return bool(self.one(flag))


def parse_options(
    command: Sequence[str],
    options: Sequence[CommandOption],
    words: Sequence[str],
    env: Mapping[str, str],
) -> GivenOptions:
    """Raises a Failure for an unknown option, a missing value, or one that is not a choice."""
    see_help = f"`headrace {' '.join(command)} --help` shows the options."
    by_flag = {option.flag: option for option in options}
    by_flag |= {option.short: option for option in options if option.short}
    given: dict[str, list[str]] = {option.flag: [] for option in options}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag)
        if option is None:
            raise bad_usage(f"unknown option {word!r}{_meant(flag, by_flag)}", see_help)
        if not option.metavar:
            if equals:
                raise bad_usage(f"{flag} has no value", see_help)
            value = "true"
        elif not equals:
            following = next(rest, None)
            if following is None:
                raise bad_usage(f"{flag} needs a value, {option.metavar}", see_help)
            value = following
        # The last value is used, unless the option may be repeated.
        earlier = given[option.flag] if option.repeatable else []
        given[option.flag] = [*earlier, value]
    for option in options:
        fallback = env.get(option.env, "") if option.env else ""
        found = given[option.flag] = given[option.flag] or [fallback or option.default or ""]
        if option.choices:
            found[0] = found[0].lower()
            if found[0] not in option.choices:
                choices = ", ".join(option.choices)
                raise bad_usage(f"{option.flag} {found[0]!r} is not one of {choices}")
    return GivenOptions(given)


def _meant(flag: str, known: Mapping[str, CommandOption]) -> str:
    import difflib

    close = difflib.get_close_matches(flag, known, 1)
    return f"; did you mean {close[0]}?" if close else ""
