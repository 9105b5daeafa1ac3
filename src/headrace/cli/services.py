"""Common parts of `headrace NAME serve`: options, settings, start."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import DEFAULT_BOOTSTRAP
from headrace.errors import SettingError
from headrace.service.request import Request
from headrace.service.settings import KEY_STORES, ServiceSettings, check_setting
from headrace.settings.files import load_properties, load_toml, parse_assignment
from headrace.settings.setting import Setting

if TYPE_CHECKING:
    from headrace.service.http_service import HttpService

R = TypeVar("R", bound=Request)


class LogFormat(StrEnum):
    """Format of the log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


ServiceBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker of the cluster; separate several with commas.",
        show_default=DEFAULT_BOOTSTRAP,
        rich_help_panel="Cluster and output",
    ),
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="File with settings, as .toml or as Java properties."
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="One setting; may be repeated."),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Format of the log on standard error.")
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="Lowest level that is logged.")
]


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
    name: str,
    build: Callable[[], "HttpService[R]"],
    settings: ServiceSettings,
    log_format: LogFormat,
    log_level: LogLevel,
) -> None:
    """Runs the service that `build` imports and creates, until a signal."""
    try:
        from headrace.service.errors import StartFailure
        from headrace.service.security import make_security
        from headrace.service.server import ProcessOptions, run

        security = make_security(name, settings)
        service = build()
    except StartFailure as error:
        raise Failure(str(error)) from None
    except ModuleNotFoundError as error:
        raise Failure(
            f"the {name} requires the package {error.name}, which is not installed",
            hint="pip install 'headrace[services]'",
        ) from None
    except SettingError as error:
        raise bad_usage(str(error)) from None
    options = ProcessOptions(
        listen=settings.listen,
        log_format=log_format.value,
        log_level=log_level.value,
        graceful_stop_s=settings.integer("shutdown.graceful.ms") / 1000,
        idle_connection_s=settings.integer("idle.timeout.ms") / 1000,
        security=security,
    )
    if code := run(service, options):
        raise typer.Exit(code)
