"""`headrace serve`: parses the options and starts the broker."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.cli.failures import bad_usage
from headrace.cli.option_table import CommandOption, ProcessCommand, parse_options

if TYPE_CHECKING:
    from headrace.settings import Settings

SUMMARY = "Start a broker on this machine."
DETAILS = """
Any Kafka client can use it immediately. The data is stored in the data directory; after a crash the
broker recovers it at its next start. Ctrl-C stops the broker cleanly.

Settings have Kafka's own names. Options on the command line override --set, --set overrides the
file, and the file overrides the defaults.
"""
EXAMPLES = (
    "headrace serve",
    "headrace serve --data-dir /var/lib/headrace --listen 0.0.0.0:9092 --advertise kafka.lan:9092",
    "headrace serve --set num.partitions=3 --set log.retention.hours=24",
    "headrace serve --config server.properties --log-format json",
    "headrace serve --brokers 2",
)

DEFAULT_DATA_DIR = "headrace-data"
DEFAULT_LISTEN = "127.0.0.1:9092"
WORDS = ("serve",)
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
MOST_BROKERS = 64


OPTIONS = (
    CommandOption(
        "--data-dir", "DIR",
        "Data directory; created if missing. May be repeated, for several disks.",
        env="HEADRACE_DATA_DIR", shown_default=f"./{DEFAULT_DATA_DIR}", repeatable=True,
    ),
    CommandOption(
        "--listen", "HOST:PORT", "Address of the listener; port 0 selects a free port.",
        env="HEADRACE_LISTEN", shown_default=DEFAULT_LISTEN,
    ),
    CommandOption(
        "--advertise", "HOST:PORT", "Advertised address for clients.",
        env="HEADRACE_ADVERTISE", shown_default="the --listen address",
    ),
    CommandOption("--node-id", "N", "This broker's number in the cluster.", env="HEADRACE_NODE_ID"),
    CommandOption(
        "--brokers", "N",
        "Run N broker processes on this machine, on consecutive ports.",
        env="HEADRACE_BROKERS", shown_default="1",
    ),
    CommandOption(
        "--metadata", "ADDRESS",
        "Metadata store of the cluster: zookeeper://HOST:PORT,.../PATH, or sqlite:FOLDER.",
        env="HEADRACE_METADATA", shown_default="the data directory",
    ),
    CommandOption("--config", "FILE", "File with settings, as .toml or as Kafka's .properties."),
    CommandOption("--set", "NAME=VALUE", "One setting; may be repeated.", repeatable=True),
    CommandOption(
        "--metrics", "HOST:PORT", "Address for /metrics and /health, over HTTP.",
        env="HEADRACE_METRICS", shown_default="nowhere",
    ),
    CommandOption(
        "--log-format", "text|json", "Format of the broker's own log on standard error.",
        env="HEADRACE_LOG_FORMAT", default="text", choices=LOG_FORMATS,
    ),
    CommandOption(
        "--log-level", "LEVEL", "debug, info, warning or error.",
        env="HEADRACE_LOG_LEVEL", default="info", choices=LOG_LEVELS,
    ),
)  # fmt: skip


class ServeOptions(NamedTuple):
    """The options of the command line, before they are checked against the settings table."""

    settings: dict[str, str]
    data_dirs: tuple[str, ...]
    node_id: int | None
    log_format: str
    log_level: str
    brokers: int
    config: str = ""
    """The file of --config."""
    assignments: tuple[str, ...] = ()
    """The words of --set."""


def start(words: list[str]) -> int:
    """Run a broker until a stop signal; returns its exit code."""
    from headrace.errors import SettingError
    from headrace.settings import Settings

    plan = make_plan(words, os.environ)
    try:
        settings = Settings.parse(plan.settings)
    except SettingError as error:
        raise bad_usage(str(error)) from None
    if plan.config or plan.assignments:
        _warn_of_secrets(plan)
    if plan.brokers > 1:
        return _start_several(plan, settings)
    from headrace.broker import server

    return server.main(
        settings,
        plan.data_dirs,
        plan.node_id,
        plan.log_format,
        plan.log_level,
    )


def _warn_of_secrets(plan: ServeOptions) -> None:
    """Warn of secrets that other users of this machine can read."""
    from headrace.logs import configure_logs
    from headrace.settings.files import warn_of_readable_secrets, warn_of_visible_secrets
    from headrace.settings.resolve import is_secret_setting

    configure_logs(plan.log_format, plan.log_level)
    warn_of_visible_secrets(plan.assignments, is_secret_setting)
    if plan.config:
        assigned = {one.partition("=")[0].strip() for one in plan.assignments}
        in_file = {name: text for name, text in plan.settings.items() if name not in assigned}
        warn_of_readable_secrets(plan.config, in_file, is_secret_setting)


def make_plan(words: list[str], env: Mapping[str, str]) -> ServeOptions:
    """Combine options, environment and file by precedence."""
    given = parse_options(WORDS, OPTIONS, words, env)
    settings = _settings(given.one("--config"), given.all("--set"))
    if given.one("--metrics"):
        settings["headrace.metrics.address"] = given.one("--metrics")
    if given.one("--metadata"):
        settings["headrace.metadata"] = given.one("--metadata")
    node_id = given.one("--node-id") or settings.get("node.id") or settings.get("broker.id") or ""
    if node_id and not node_id.isdecimal():
        raise bad_usage(f"the node id must be a whole number, not {node_id!r}")
    _set_listeners(settings, given.one("--listen"), given.one("--advertise"))
    named = given.all("--data-dir") or (
        settings.get("log.dirs") or settings.get("log.dir") or ""
    ).split(",")
    return ServeOptions(
        settings=settings,
        data_dirs=_folders(named) or (DEFAULT_DATA_DIR,),
        node_id=int(node_id) if node_id else None,
        log_format=given.one("--log-format"),
        log_level=given.one("--log-level"),
        brokers=_brokers(given.one("--brokers")),
        config=given.one("--config"),
        assignments=tuple(given.all("--set")),
    )


def _brokers(text: str) -> int:
    if not text:
        return 1
    if not text.isdecimal() or not 1 <= int(text) <= MOST_BROKERS:
        raise bad_usage(f"--brokers must be a number from 1 to {MOST_BROKERS}, not {text!r}")
    return int(text)


def _start_several(plan: ServeOptions, settings: "Settings") -> int:
    """Run several brokers; options without a value per broker apply to all."""
    for flag, given, why in (
        ("--node-id", plan.node_id is not None, "the brokers are numbered from 1"),
        (
            "--metadata",
            bool(plan.settings.get("headrace.metadata")),
            "they share one metadata store",
        ),
        ("--data-dir", len(plan.data_dirs) > 1, "each has one folder"),
        ("--metrics", bool(plan.settings.get("headrace.metrics.address")), "each needs its own"),
    ):
        if given:
            raise bad_usage(f"--brokers cannot be combined with {flag} like this: {why}")
    from headrace.broker import supervisor
    from headrace.logs import configure_logs

    configure_logs(plan.log_format, plan.log_level)
    words = ("--log-format", plan.log_format, "--log-level", plan.log_level)
    several = supervisor.SupervisorPlan(
        plan.brokers, plan.data_dirs[0], settings, plan.settings, words
    )
    if trouble := supervisor.shared_port(several):
        raise bad_usage(trouble)
    return supervisor.main(several)


def _folders(names: list[str]) -> tuple[str, ...]:
    """Data folders without duplicates; a value may contain several, like log.dirs."""
    folders = [folder.strip() for name in names for folder in name.split(",")]
    return tuple(dict.fromkeys(folder for folder in folders if folder))


def _settings(file: str, assignments: list[str]) -> dict[str, str]:
    """The settings of the file and of --set, each checked with its origin."""
    if not file and not assignments:
        return {}
    from headrace.errors import SettingError
    from headrace.settings import load_properties, load_toml, parse_assignment

    settings: dict[str, str] = {}
    try:
        if file:
            settings.update(load_toml(file) if file.endswith(".toml") else load_properties(file))
        settings.update(parse_assignment(word) for word in assignments)
    except SettingError as error:
        raise bad_usage(str(error)) from None
    except OSError as error:
        raise bad_usage(f"--config {file}: {error.strerror}") from None
    return settings


def _set_listeners(settings: dict[str, str], listen: str, advertise: str) -> None:
    """Set the addresses of --listen and --advertise in the settings of a single listener."""
    names = [
        name
        for word in settings.get("listeners", "").split(",")
        if (name := word.partition("://")[0].strip()) and name.upper() != "CONTROLLER"
    ]
    for option, setting, text, lowest_port in (
        ("--listen", "listeners", listen, 0),
        ("--advertise", "advertised.listeners", advertise, 1),
    ):
        if not text:
            continue
        if len(names) > 1:
            raise bad_usage(
                f"{option} needs a single listener, but the setting listeners has several "
                f"({', '.join(names)}); set their addresses in {setting}"
            )
        name = names[0] if names else "PLAINTEXT"
        settings[setting] = f"{name}://{_address(text, option, lowest_port)}"
    settings.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTEN}")


def _address(text: str, option: str, lowest_port: int) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not lowest_port <= int(port) < 65536:
        raise bad_usage(f"{option} {text!r} is not HOST:PORT")
    return text


COMMAND = ProcessCommand(WORDS, SUMMARY, DETAILS, EXAMPLES, OPTIONS, start)
