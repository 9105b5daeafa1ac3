"""`headrace serve`: reads the options and hands over to the broker.

This is the one command without Typer, whose import would double the broker's start-up time. Its
options stand in one table, OPTIONS; `serve_help.py` shows the same table through Typer.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from headrace.cli.failures import bad_usage

SUMMARY = "Start a broker on this machine."
DETAILS = """
Any Kafka client can use it at once. Data stays in the data directory; a broker that was killed
recovers it at its next start. Ctrl-C stops it cleanly.

Settings have Kafka's own names. Options on the command line win over --set, --set wins over the
file, and the file wins over the defaults.
"""
EXAMPLES = (
    "headrace serve",
    "headrace serve --data-dir /var/lib/headrace --listen 0.0.0.0:9092 --advertise kafka.lan:9092",
    "headrace serve --set num.partitions=3 --set log.retention.hours=24",
    "headrace serve --config server.properties --log-format json",
)

DEFAULT_DATA_DIR = "headrace-data"
DEFAULT_LISTEN = "127.0.0.1:9092"
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


@dataclass(frozen=True, slots=True)
class Option:
    """One option, for both parsers."""

    flag: str
    metavar: str
    text: str
    env: str = ""
    default: str | None = None
    shown_default: str = ""
    choices: tuple[str, ...] = ()
    repeatable: bool = False

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


OPTIONS = (
    Option(
        "--data-dir", "DIR", "Where the log lives; made if missing.",
        env="HEADRACE_DATA_DIR", shown_default=f"./{DEFAULT_DATA_DIR}",
    ),
    Option(
        "--listen", "HOST:PORT", "Address to accept clients on; port 0 picks a free one.",
        env="HEADRACE_LISTEN", shown_default=DEFAULT_LISTEN,
    ),
    Option(
        "--advertise", "HOST:PORT", "Address that clients are told to use.",
        env="HEADRACE_ADVERTISE", shown_default="the --listen address",
    ),
    Option("--node-id", "N", "This broker's number in the cluster.", env="HEADRACE_NODE_ID"),
    Option("--config", "FILE", "Settings, as .toml or as Kafka's .properties."),
    Option("--set", "NAME=VALUE", "One setting; may be repeated.", repeatable=True),
    Option(
        "--log-format", "text|json", "How the broker writes its own log, on standard error.",
        env="HEADRACE_LOG_FORMAT", default="text", choices=LOG_FORMATS,
    ),
    Option(
        "--log-level", "LEVEL", "debug, info, warning or error.",
        env="HEADRACE_LOG_LEVEL", default="info", choices=LOG_LEVELS,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for, before the settings table has judged it."""

    settings: Mapping[str, str]
    data_dir: str
    listen: tuple[str, int]
    advertise: tuple[str, int] | None
    node_id: int | None
    log_format: str
    log_level: str


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise bad_usage(message, "`headrace serve --help` shows the options.")


def start(words: list[str]) -> int:
    """Run a broker until it is told to stop; its exit code."""
    plan = make_plan(words, os.environ)
    from headrace.errors import SettingError
    from headrace.settings import Settings

    try:
        settings = Settings.parse(plan.settings)
    except SettingError as error:
        raise bad_usage(str(error)) from None
    from headrace.broker import server

    return server.main(
        settings,
        plan.data_dir,
        plan.listen,
        plan.advertise,
        plan.node_id,
        plan.log_format,
        plan.log_level,
    )


def make_plan(words: list[str], env: Mapping[str, str]) -> Plan:
    """Options, environment and file, put together by their precedence."""
    given = _parse(words, env)
    settings: dict[str, str] = {}
    if isinstance(path := given["config"], str):
        from headrace.cli import settings_file

        settings.update(settings_file.read(path))
    settings.update(_assignments(given["set"]))
    node_id = _text(given, "node_id") or settings.get("node.id") or settings.get("broker.id")
    if node_id is not None and not node_id.lstrip("-").isdecimal():
        raise bad_usage(f"the node id must be a whole number, not {node_id!r}")
    listen = _text(given, "listen") or _listener(settings.get("listeners")) or DEFAULT_LISTEN
    advertise = _text(given, "advertise") or _listener(settings.get("advertised.listeners"))
    folders = (settings.get("log.dirs") or settings.get("log.dir") or "").split(",")
    return Plan(
        settings=settings,
        data_dir=_text(given, "data_dir") or folders[0].strip() or DEFAULT_DATA_DIR,
        listen=_address(listen, "--listen", lowest_port=0),
        advertise=_address(advertise, "--advertise", lowest_port=1) if advertise else None,
        node_id=None if node_id is None else int(node_id),
        log_format=_text(given, "log_format") or LOG_FORMATS[0],
        log_level=(_text(given, "log_level") or "info").lower(),
    )


def _parse(words: list[str], env: Mapping[str, str]) -> dict[str, object]:
    parser = _Parser(prog="headrace serve", add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        choices = option.choices or None
        default = (env.get(option.env) if option.env else None) or option.default
        if choices and default not in choices:
            raise bad_usage(f"{option.env}={default} is none of {', '.join(choices)}")
        if option.repeatable:
            parser.add_argument(option.flag, dest=option.name, action="append", default=[])
        else:
            parser.add_argument(option.flag, dest=option.name, default=default, choices=choices)
    return vars(parser.parse_args(words))


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given[name]
    return value if isinstance(value, str) else None


def _assignments(words: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words if isinstance(words, list) else []:
        name, equals, value = str(word).partition("=")
        if not equals or not name:
            raise bad_usage(f"--set {word!r} is not of the form NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _listener(text: str | None) -> str | None:
    """The client listener among Kafka's `NAME://host:port` words; the controller's is not ours."""
    for word in (text or "").split(","):
        name, scheme, address = word.strip().partition("://")
        if not scheme:
            address = name
        if address and name.upper() != "CONTROLLER":
            return f"0.0.0.0{address}" if address.startswith(":") else address
    return None


def _address(text: str, option: str, *, lowest_port: int) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not lowest_port <= int(port) < 65536:
        raise bad_usage(f"{option} {text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)
