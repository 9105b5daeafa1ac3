"""`headrace security`: sets up TLS, users and permissions of a broker, checks and renews them."""

import contextlib
import ipaddress
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import ExitCode, Failure, bad_usage, not_found
from headrace.cli.options import AsJson, examples

if TYPE_CHECKING:
    from headrace.security.secured_folder import SecuredFolder
    from headrace.security.state import SecurityState

DEFAULT_FOLDER = "security"
REGISTRY_PORT = 8081
SETTINGS_FILES = ("broker.properties", "registry-http.properties")
"""Properties in that folder that are not of clients."""

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace security init",
        "headrace serve --config security/broker.properties",
        "headrace topics list --client-config security/admin.properties",
        "headrace security check",
        "headrace security renew",
    ),
)

Folder = Annotated[
    str, typer.Option("--folder", metavar="FOLDER", help="The folder that `init` creates.")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Name or address under which clients reach the broker; the first one is advertised. "
        "Repeatable.",
        show_default=False,
    ),
]


@app.callback()
def _group() -> None:
    """Set up TLS, users and permissions of a broker; check them; renew certificates."""


@app.command(
    epilog=examples(
        "headrace security init",
        "headrace security init --host kafka.example.com --host 10.0.0.5 --port 9093",
        "headrace security init --folder /etc/headrace --data /var/lib/headrace",
    )
)
def init(
    host: Hosts = None,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", help="Port of the broker.", min=1, max=65535)
    ] = 9092,
    folder: Folder = DEFAULT_FOLDER,
    data: Annotated[
        str, typer.Option("--data", metavar="FOLDER", help="The broker's data folder.")
    ] = "headrace-data",
    as_json: AsJson = False,
) -> None:
    """Create all files of a secured broker and its clients.

    A certificate authority and a certificate of the broker; settings of the broker with TLS, logins
    and permissions; the users admin, broker, registry, connect, sql and console with random
    passwords, in the broker's data folder; files for clients; a certificate and settings of the
    HTTP services, with users of their own. The broker must not be running.
    """
    from headrace.cli.security.stopped_broker import open_stopped
    from headrace.security.client_login import ClientLogin

    with _cryptography():
        from headrace.security.secured_folder import (
            ADMIN,
            BROKER,
            CONNECT,
            CONSOLE,
            LOCAL_HOSTS,
            REGISTRY,
            SQL,
            SecuredFolder,
        )

    secured = SecuredFolder(Path(folder))
    _check_new(secured, folder)
    hosts = [_checked(one) for one in host or ()]
    services = (REGISTRY, CONNECT, SQL, CONSOLE)
    passwords = _random_passwords(ADMIN, BROKER, *services)
    # Other machines can connect only if a host was given.
    bind, name = ("0.0.0.0", _bracketed(hosts[0])) if hosts else ("127.0.0.1", "127.0.0.1")
    address = f"{name}:{port}"
    settings = {**_addresses(bind, port, address), **_folders(data)}
    with open_stopped(data, make=True) as broker:
        secured.make_certificates(list(dict.fromkeys([*hosts, *LOCAL_HOSTS])))
        secured.write_broker_file({**settings, **secured.broker_settings(passwords[BROKER])})
        admin, *others = (
            ClientLogin(address, str(secured.ca_file), user, passwords[user])
            for user in (ADMIN, *services)
        )
        files = [*secured.write_all_client_files(admin), *map(secured.write_client_file, others)]
        # Passwords of their own: a service that sees one of them does not get to the cluster by it.
        http_users = _random_passwords(ADMIN, SQL, CONSOLE)
        secured.write_registry_files(bind, name, REGISTRY_PORT, http_users)
        broker.alter(lambda state: _with_users(state, passwords))
    if as_json:
        output.print_json(
            {
                "folder": str(secured.path),
                "hosts": [*hosts, *LOCAL_HOSTS],
                "bootstrap": address,
                "users": sorted(passwords),
                "broker_settings": str(secured.broker_file),
                "client_files": [str(one) for one in files],
                "registry_settings": str(secured.registry_file),
            }
        )
    else:
        _print_next(folder, address, [*hosts, *LOCAL_HOSTS])


def _addresses(bind: str, port: int, address: str) -> dict[str, str]:
    return {
        "listeners": f"SASL_SSL://{bind}:{port}",
        "advertised.listeners": f"SASL_SSL://{address}",
    }


def _folders(data: str) -> dict[str, str]:
    folder = Path(data).absolute()
    return {"log.dirs": str(folder), "headrace.audit.file": str(folder / "audit.log")}


def _with_users(state: "SecurityState", passwords: dict[str, str]) -> "SecurityState":
    from headrace.security.admin import (
        connect_acls,
        console_acls,
        registry_acls,
        sql_acls,
        with_password,
    )
    from headrace.security.secured_folder import CONNECT, CONSOLE, REGISTRY, SQL

    for name, password in passwords.items():
        state = with_password(state, name, password)
    return state.with_acls(
        [
            *registry_acls(f"User:{REGISTRY}"),
            *connect_acls(f"User:{CONNECT}"),
            *sql_acls(f"User:{SQL}"),
            *console_acls(f"User:{CONSOLE}"),
        ]
    )


def _random_passwords(*names: str) -> dict[str, str]:
    return {name: secrets.token_urlsafe(24) for name in names}


def _print_next(folder: str, address: str, hosts: list[str]) -> None:
    print(
        f"""\
Created in {folder}: a certificate authority, a certificate for {", ".join(hosts)}, and the users
admin (all permissions), broker (for other brokers), registry, connect, sql and console (for
services).
Their passwords are in the files of that folder, which only you can read. Keep ca.key safe.

Next:
  headrace serve --config {folder}/broker.properties
  echo hello | headrace produce greetings --create --client-config {folder}/admin.properties
  headrace security check{"" if folder == DEFAULT_FOLDER else f" --folder {folder}"}

Clients connect to {address} with the files in {folder}:
  admin.properties        headrace --client-config, librdkafka (Go, C, .NET, Node, ...)
  admin.java.properties   Java, and Kafka's tools (--command-config)
  admin.python.json       confluent-kafka, kafka-python, aiokafka
  admin.spark.json        Spark: .options(**json.load(open(...)))
  admin.kcat.conf         kcat -F
  admin.registry.json     confluent-kafka's SchemaRegistryClient

The schema registry, and likewise `headrace connect serve`, `sql serve` and `console`:
  headrace registry serve --config {folder}/registry-http.properties \\
    --client-config {folder}/registry.properties

More users: headrace users add NAME. Their permissions: headrace acls add"""
    )


@app.command(
    epilog=examples(
        "headrace security renew",
        "headrace security renew --host kafka2.example.com --days 90",
    )
)
def renew(
    host: Hosts = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", help="Days for which it is valid.", min=1)
    ] = 397,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Renew the certificates of broker and registry from the authority of `init`.

    Both use them within seconds, without a restart; open connections are kept.
    """
    with _cryptography():
        from headrace.security.secured_folder import SecuredFolder
    secured = SecuredFolder(Path(folder))
    _check_made(secured, folder)
    try:
        made = secured.renew([_checked(one) for one in host or ()], days)
    except (OSError, ValueError) as error:
        raise Failure(f"the certificate in {folder} cannot be renewed: {error}") from None
    if as_json:
        output.print_json({"hosts": sorted(made.hosts), "not_after": made.not_after.isoformat()})
    else:
        output.note(
            f"{secured.key_store_file} is valid until {made.not_after:%Y-%m-%d} for "
            f"{', '.join(sorted(made.hosts))}. The broker uses it within seconds."
        )


@app.command(
    epilog=examples(
        "headrace security check",
        "headrace security check security/admin.properties --topic orders",
    )
)
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Client files, of librdkafka or Java.",
            show_default="those in --folder",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="A broker of the cluster.",
            show_default="that of the file",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", metavar="TOPIC", help="Also check the user's permissions on this topic."
        ),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Connect like each client, and show the first problem.

    The steps are: the file, the network, TLS and the certificate, the login, the addresses that the
    brokers advertise, and permissions. The exit code is 1 if a step fails.
    """
    from headrace.cli.security.connection_check import check_client

    if topic is not None and not files:
        raise bad_usage("--topic needs a client file with the user")
    paths = [Path(one) for one in files or ()] or _client_files(folder)
    found = {str(path): check_client(path, bootstrap, topic) for path in paths}
    wrong = [step for steps in found.values() for step in steps if not step.ok]
    if as_json:
        output.print_json(
            [
                {
                    "file": file,
                    "ok": all(step.ok for step in steps),
                    "steps": [step._asdict() for step in steps],
                }
                for file, steps in found.items()
            ]
        )
    else:
        for file, steps in found.items():
            print(file)
            for step in steps:
                print(f"  {'ok    ' if step.ok else 'WRONG '} {step.what}: {step.detail}")
    if wrong:
        raise typer.Exit(int(ExitCode.FAILED))


def _client_files(folder: str) -> list[Path]:
    path = Path(folder)
    found = [
        *sorted(one for one in path.glob("*.properties") if one.name not in SETTINGS_FILES),
        *sorted(path.glob("*.kcat.conf")),
    ]
    if not found:
        raise not_found(
            f"there are no client files in {folder}", "Create them with `headrace security init`."
        )
    return found


def _check_new(secured: "SecuredFolder", folder: str) -> None:
    if secured.ca_key_file.exists():
        raise Failure(
            f"{folder} has a certificate authority already",
            code="EXISTS",
            hint="`headrace security renew` renews its certificates; to start over, delete it.",
        )


def _check_made(secured: "SecuredFolder", folder: str) -> None:
    if not secured.ca_key_file.exists():
        raise not_found(
            f"there is no authority in {folder}",
            "Create one with `headrace security init`, or specify another --folder.",
        )


def _checked(host: str) -> str:
    """A host name or an address, in the form for certificates."""
    name = host.strip("[]")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    if not name or not all(part for part in name.split(".")) or not name.isascii() or ":" in name:
        raise bad_usage(
            f"--host {host!r} is not a host name",
            "Specify a name or an address, without a port; use --port.",
        )
    return name.lower()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _cryptography() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise Failure(str(error)) from None
