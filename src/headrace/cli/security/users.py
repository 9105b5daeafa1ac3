"""`headrace users`: the users that log in with a password."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, not_found
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples

if TYPE_CHECKING:
    from headrace.cli.security.stopped_broker import StoppedBroker
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.users import UserDescription
    from headrace.security.http_users import HttpUser

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace users list",
        "headrace users add alice                                 prompts for a password",
        "headrace users add alice --password-file alice.password",
        "headrace users add admin --admin --data headrace-data    on a stopped broker",
        "headrace users add alice --file http-users --role write  for the registry's HTTP API",
        "headrace users password alice",
        "headrace users delete alice --yes",
    ),
)


class Mechanism(StrEnum):
    """The mechanisms for which brokers keep credentials."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


NameArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the password; - is standard input.",
        show_default="prompts for it",
    ),
]
Mechanisms = Annotated[
    list[Mechanism] | None,
    typer.Option(
        "--mechanism",
        help="Login mechanism; may be repeated.",
        show_default="both",
        case_sensitive=False,
    ),
]
DataFolder = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="The data folder of a stopped broker, instead of a running cluster.",
        rich_help_panel="Cluster and output",
    ),
]


UsersFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="A file with the users of an HTTP service (headrace.authentication.users.file), "
        "instead of a running cluster.",
        rich_help_panel="Cluster and output",
    ),
]


class RoleName(StrEnum):
    """Roles of users of HTTP services."""

    VIEW = "view"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Users(Protocol):
    """A source of users: a cluster, the folder of a stopped broker, or a file."""

    def iterations(self) -> Mapping[str, Mapping[str, int]]:
        """All users, and the iterations of their mechanisms."""

    def set_password(self, name: str, password: str, mechanisms: tuple[str, ...]) -> None:
        """Create the user, or change its password."""

    def allow_everything(self, name: str) -> None:
        """Give the user the ACLs of an administrator."""

    def delete(self, name: str) -> None:
        """Delete the user."""


class ClusterUsers:
    """The users of a running cluster, Headrace or Apache Kafka."""

    def __init__(self, connected: "Connected") -> None:
        self._connected = connected
        self._known: dict[str, UserDescription] = {}

    def iterations(self) -> Mapping[str, Mapping[str, int]]:
        from headrace.client.users import describe_users

        self._known = describe_users(self._connected)
        return {name: user.iterations for name, user in self._known.items()}

    def set_password(self, name: str, password: str, mechanisms: tuple[str, ...]) -> None:
        from headrace.client.users import set_password

        set_password(self._connected, name, password, mechanisms)

    def allow_everything(self, name: str) -> None:
        from headrace.client.acls import create_acls
        from headrace.security.admin import admin_acls

        create_acls(self._connected, admin_acls(f"User:{name}"))

    def delete(self, name: str) -> None:
        from headrace.client.users import delete_user

        delete_user(self._connected, self._known[name])


class FolderUsers:
    """The users in the data folder of a stopped broker."""

    def __init__(self, broker: "StoppedBroker") -> None:
        self._broker = broker

    def iterations(self) -> Mapping[str, Mapping[str, int]]:
        return {
            name: {mechanism: one.iterations for mechanism, one in credentials.items()}
            for name, credentials in sorted(self._broker.security.users.items())
        }

    def set_password(self, name: str, password: str, mechanisms: tuple[str, ...]) -> None:
        from headrace.security.admin import with_password

        self._broker.alter(lambda state: with_password(state, name, password, mechanisms))

    def allow_everything(self, name: str) -> None:
        from headrace.security.admin import admin_acls

        self._broker.alter(lambda state: state.with_acls(admin_acls(f"User:{name}")))

    def delete(self, name: str) -> None:
        self._broker.alter(lambda state: state.with_user(name, {}))


class FileUsers:
    """The users of an HTTP service, in a file."""

    def __init__(self, path: str, role: RoleName | None) -> None:
        self._path = Path(path)
        self._role = role

    def _read(self) -> "Mapping[str, HttpUser]":
        from headrace.security.http_users import parse_users

        return parse_users(self._path.read_text("utf-8")) if self._path.exists() else {}

    def iterations(self) -> Mapping[str, Mapping[str, int]]:
        return {
            name: {} if user.credential is None else {user.mechanism: user.credential.iterations}
            for name, user in sorted(self._read().items())
        }

    def set_password(self, name: str, password: str, mechanisms: tuple[str, ...]) -> None:
        from headrace.security.http_users import verifier_text, write_user

        known = self._read().get(name)
        role = self._role or (RoleName.READ if known is None else known.role.name.lower())
        write_user(self._path, name, f"{verifier_text(password)},{role}")

    def allow_everything(self, name: str) -> None:
        raise bad_usage("--admin is for users of a cluster", "Use --role admin with --file.")

    def delete(self, name: str) -> None:
        from headrace.security.http_users import write_user

        write_user(self._path, name, None)


@contextlib.contextmanager
def _open(
    bootstrap: str,
    client_config: str | None,
    data: str | None,
    file: str | None,
    *,
    make: bool = False,
    role: RoleName | None = None,
) -> Iterator[Users]:
    if file is not None:
        try:
            yield FileUsers(file, role)
        except (OSError, ValueError) as error:
            raise Failure(f"{file}: {error}") from None
        return
    if role is not None:
        raise bad_usage("--role is for users in a --file", "Use ACLs for users of a cluster.")
    if data is not None:
        from headrace.cli.security.stopped_broker import open_stopped

        with open_stopped(data, make=make) as broker:
            yield FolderUsers(broker)
        return
    from headrace.cli import client

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        yield ClusterUsers(connected)


@app.callback()
def _group() -> None:
    """List, add and delete the users that log in with a password (PLAIN and SCRAM)."""


@app.command("list", epilog=examples("headrace users list", "headrace users list --json"))
def list_users(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
    data: DataFolder = None,
    file: UsersFile = None,
) -> None:
    """List the users and the mechanisms by which they log in."""
    with _open(bootstrap, client_config, data, file) as users:
        found = users.iterations()
    if as_json:
        output.print_json(
            [{"name": name, "mechanisms": dict(known)} for name, known in found.items()]
        )
    elif not found:
        output.note("No users. Add one: headrace users add NAME")
    else:
        output.print_table(
            ("User", "Mechanisms"),
            [(name, ", ".join(sorted(known))) for name, known in found.items()],
        )


@app.command(
    epilog=examples(
        "headrace users add alice",
        "headrace users add alice --password-file alice.password",
        "headrace users add admin --admin --data headrace-data",
        "headrace users add alice --file http-users --role write",
    )
)
def add(
    name: NameArgument,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="Allow the user everything, with ACLs for ALL on every resource.",
        ),
    ] = False,
    role: Annotated[
        RoleName | None,
        typer.Option(
            "--role",
            help="Role of a user of an HTTP service; with --file only.",
            show_default="read",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
    data: DataFolder = None,
    file: UsersFile = None,
) -> None:
    """Add a user. The password comes from a prompt, a file or standard input.

    If the brokers have an authorizer, the user has no permissions yet: see `headrace acls add`.
    With --admin it gets ACLs that allow all operations. A super user is different: it is in the
    brokers' setting super.users, and no ACL can deny it anything.

    With --file the user is one of an HTTP service such as the schema registry, which has its own
    users, with roles instead of ACLs.
    """
    _check_name(name)
    if file is not None and (admin or mechanism):
        raise bad_usage("--admin and --mechanism are for users of a cluster", "Use --role.")
    with _open(bootstrap, client_config, data, file, make=True, role=role) as users:
        if name in users.iterations():
            raise Failure(
                f"user {name!r} exists already",
                code="EXISTS",
                hint=f"Change its password: headrace users password {name}",
            )
        chosen = _chosen(mechanism) if file is None else (Mechanism.SHA_256.value,)
        users.set_password(name, _read_password(password_file, name), chosen)
        if admin:
            users.allow_everything(name)
    if as_json:
        output.print_json({"name": name, "mechanisms": list(chosen), "admin": admin})
    else:
        output.note(f"Added user {name}{' with all permissions' if admin else ''}.")


@app.command(
    epilog=examples(
        "headrace users password alice", "headrace users password alice --password-file -"
    )
)
def password(
    name: NameArgument,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
    data: DataFolder = None,
    file: UsersFile = None,
) -> None:
    """Change a user's password. Open connections are not closed."""
    with _open(bootstrap, client_config, data, file) as users:
        known = _known(users, name)
        chosen = _chosen(mechanism, tuple(known))
        users.set_password(name, _read_password(password_file, name), chosen)
    if as_json:
        output.print_json({"name": name, "mechanisms": list(chosen)})
    else:
        output.note(f"Changed the password of user {name}.")


@app.command(epilog=examples("headrace users delete alice --yes"))
def delete(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
    data: DataFolder = None,
    file: UsersFile = None,
) -> None:
    """Delete a user. Its ACLs and its open connections remain."""
    with _open(bootstrap, client_config, data, file) as users:
        _known(users, name)
        if not yes:
            if not sys.stdin.isatty():
                raise bad_usage(
                    f"will not delete user {name} without confirmation", "Add --yes to confirm."
                )
            if not typer.confirm(f"Delete user {name}?", err=True):
                raise Failure(f"user {name} was not deleted")
        users.delete(name)
    if as_json:
        output.print_json({"deleted": [name]})
    else:
        rest = f"Its ACLs remain: `headrace acls remove --principal User:{name}` removes them."
        output.note(f"Deleted user {name}. {rest if file is None else ''}".rstrip())


def _read_password(file: str | None, name: str) -> str:
    """The password in a file, in standard input, or from the terminal; never from an argument."""
    if file is None and sys.stdin.isatty():
        asked: str = typer.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        return asked
    from headrace.security.admin import one_line, read_password_file

    where = "standard input" if file in (None, "-") else f"--password-file {file}"
    try:
        if file is None or file == "-":
            return one_line(sys.stdin.read())
        return read_password_file(file)
    except OSError as error:
        raise bad_usage(f"{where}: {error.strerror}") from None
    except ValueError as error:
        raise bad_usage(f"{where}: {error}") from None


def _check_name(name: str) -> None:
    if not name or name.startswith("User:"):
        raise bad_usage(
            f"{name!r} is not a user's name",
            "Specify the name without a type; in ACLs it is User:NAME.",
        )


def _known(users: Users, name: str) -> Mapping[str, int]:
    found = users.iterations()
    if name not in found:
        raise not_found(f"user {name!r} does not exist", "`headrace users list` shows all users.")
    return found[name]


def _chosen(
    mechanisms: list[Mechanism] | None,
    default: tuple[str, ...] = tuple(map(str, Mechanism)),
) -> tuple[str, ...]:
    return tuple(one.value for one in mechanisms) if mechanisms else default
