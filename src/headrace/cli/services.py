"""Common parts of the commands that start an HTTP service: options, settings, start."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.cli.failures import Failure, bad_usage
from headrace.cli.option_table import (
    CLUSTER_PANEL,
    DEFAULT_BOOTSTRAP,
    CommandOption,
    GivenOptions,
    parse_options,
)
from headrace.errors import SettingError
from headrace.service.request import Request
from headrace.service.settings import KEY_STORES, ServiceSettings, check_setting
from headrace.settings.files import (
    load_properties,
    load_toml,
    parse_assignment,
    warn_of_readable_secrets,
    warn_of_visible_secrets,
)
from headrace.settings.setting import Setting

if TYPE_CHECKING:
    from headrace.service.http_service import HttpService

R = TypeVar("R", bound=Request)


def service_options(listen: CommandOption, *own: CommandOption) -> tuple[CommandOption, ...]:
    """The options of a service: its address, its own options, and those of all services."""
    return (
        listen,
        *own,
        CommandOption("--config", "FILE", "File with settings, as .toml or as Java properties."),
        CommandOption("--set", "NAME=VALUE", "One setting; may be repeated.", repeatable=True),
        CommandOption(
            "--bootstrap", "HOST:PORT", "A broker of the cluster; separate several with commas.",
            short="-b", env="HEADRACE_BOOTSTRAP", shown_default=DEFAULT_BOOTSTRAP,
            panel=CLUSTER_PANEL,
        ),
        CommandOption(
            "--client-config", "FILE",
            "File with properties of the Kafka client, for TLS and logins.",
            env="HEADRACE_CLIENT_CONFIG", panel=CLUSTER_PANEL,
        ),
        CommandOption(
            "--log-format", "text|json", "Format of the log on standard error.",
            default="text", choices=("text", "json"),
        ),
        CommandOption(
            "--log-level", "LEVEL", "Lowest level that is logged: debug, info, warning or error.",
            default="info", choices=("debug", "info", "warning", "error"),
        ),
    )  # fmt: skip


class ServiceStart(NamedTuple):
    """What the command line of a service says."""

    given: GivenOptions
    settings: ServiceSettings
    properties: Mapping[str, str]
    """Properties of the Kafka client, without the address of the cluster."""


def read_command_line(
    command: tuple[str, ...],
    options: tuple[CommandOption, ...],
    table: Mapping[str, Setting],
    words: list[str],
    named: Mapping[str, str],
) -> ServiceStart:
    """Parses the words; `named` has the setting of each option of the service itself."""
    from headrace.cli import client

    given = parse_options(command, options, words, os.environ)
    path = given.one("--client-config")
    properties = client.read_properties_file(path) if path else {}
    in_file = properties.pop("bootstrap.servers", None)
    config = given.one("--config")
    settings = read_settings(
        table,
        config or None,
        given.all("--set"),
        {
            "listeners": listener(given.one("--listen") or None),
            "bootstrap.servers": given.one("--bootstrap") or in_file,
            **{name: given.one(flag) or None for flag, name in named.items()},
        },
    )
    if config or given.all("--set"):
        _warn_of_secrets(table, given, config)
    return ServiceStart(given, settings, properties)


def _warn_of_secrets(table: Mapping[str, Setting], given: GivenOptions, config: str) -> None:
    """Warn of secrets that other users of this machine can read."""
    from headrace.logs import configure_logs

    def is_secret(name: str) -> bool:
        return name in table and table[name].secret

    configure_logs(given.one("--log-format"), given.one("--log-level"))
    warn_of_visible_secrets(given.all("--set"), is_secret)
    if config:
        load = load_toml if config.endswith(".toml") else load_properties
        warn_of_readable_secrets(config, load(config, partial(check_setting, table)), is_secret)


def listener(listen: str | None) -> str | None:
    """The value of `listeners` for the option --listen, whose scheme may be left out."""
    if listen is None:
        return None
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise bad_usage(f"--listen {listen!r} is not HOST:PORT or https://HOST:PORT")
    return listen


def read_settings(
    table: Mapping[str, Setting],
    config: str | None,
    assignments: list[str] | None,
    options: Mapping[str, str | None],
) -> ServiceSettings:
    """Options override --set, --set overrides the file, the file overrides the defaults."""
    check = partial(check_setting, table)
    given: dict[str, str] = {}
    try:
        if config is not None:
            load = load_toml if config.endswith(".toml") else load_properties
            given |= load(config, check)
        given |= dict(parse_assignment(text, check) for text in assignments or ())
        given |= {name: text for name, text in options.items() if text is not None}
        if "://" not in given.get("listeners", "://"):
            scheme = "https" if any(name in given for name in KEY_STORES) else "http"
            given["listeners"] = f"{scheme}://{given['listeners']}"
        return ServiceSettings(table, given)
    except SettingError as error:
        raise bad_usage(str(error)) from None


def serve(
    name: str, build: Callable[[], "HttpService[R]"], start: ServiceStart, extra: str = "services"
) -> int:
    """Runs the service that `build` imports and creates, until a signal; returns its exit code.

    `extra` is that of the package with what the service imports.
    """
    try:
        from headrace.service.errors import StartFailure
        from headrace.service.security import make_security
        from headrace.service.server import ProcessOptions, run

        security = make_security(name, start.settings)
        service = build()
    except StartFailure as error:
        raise Failure(str(error)) from None
    except ModuleNotFoundError as error:
        raise Failure(
            f"the {name} requires the package {error.name}, which is not installed",
            hint=f"pip install 'headrace[{extra}]'",
        ) from None
    except SettingError as error:
        raise bad_usage(str(error)) from None
    settings = start.settings
    options = ProcessOptions(
        listen=settings.listen,
        log_format=start.given.one("--log-format"),
        log_level=start.given.one("--log-level"),
        graceful_stop_s=settings.integer("shutdown.graceful.ms") / 1000,
        idle_connection_s=settings.integer("idle.timeout.ms") / 1000,
        security=security,
    )
    return run(service, options)
