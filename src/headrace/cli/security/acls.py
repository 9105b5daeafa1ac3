"""`headrace acls`: permissions of users, with the options of Kafka's kafka-acls."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, not_found
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster as Connected
    from headrace.security.acls import AclBinding
    from headrace.security.authorizer import Authorization, Authorizer

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace acls list",
        "headrace acls add --allow-principal User:alice --producer --topic orders",
        "headrace acls add --allow-principal User:bob --consumer --topic orders --group billing",
        "headrace acls add --deny-principal User:eve --operation all --topic '*'",
        "headrace acls explain alice write topic orders",
        "headrace acls remove --principal User:alice --yes",
    ),
)

_RESOURCES = "Resources"
_WHO = "Principals and hosts"
_WHAT = "Operations"


def _words(flag: str, text: str, panel: str, metavar: str = "NAME") -> "typer.models.OptionInfo":
    info: typer.models.OptionInfo = typer.Option(
        flag, metavar=metavar, help=text, rich_help_panel=panel, show_default=False
    )
    return info


Topics = Annotated[
    list[str] | None, _words("--topic", "A topic; * is every topic. Repeatable.", _RESOURCES)
]
Groups = Annotated[list[str] | None, _words("--group", "A consumer group. Repeatable.", _RESOURCES)]
ClusterFlag = Annotated[
    bool, typer.Option("--cluster", help="The cluster itself.", rich_help_panel=_RESOURCES)
]
TransactionalIds = Annotated[
    list[str] | None, _words("--transactional-id", "A transactional id. Repeatable.", _RESOURCES)
]
DelegationTokens = Annotated[
    list[str] | None, _words("--delegation-token", "A delegation token. Repeatable.", _RESOURCES)
]
UserPrincipals = Annotated[
    list[str] | None,
    _words("--user-principal", "A user, for delegation tokens. Repeatable.", _RESOURCES),
]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="literal|prefixed",
        help="How names are matched: literal or prefixed.",
        rich_help_panel=_RESOURCES,
    ),
]
FilterPattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="any|match|literal|prefixed",
        help="Which ACLs of a name: any with exactly this name, all that match it, or those of a "
        "type.",
        rich_help_panel=_RESOURCES,
    ),
]
Allowed = Annotated[
    list[str] | None, _words("--allow-principal", "Allow User:NAME. Repeatable.", _WHO, "PRINCIPAL")
]
Denied = Annotated[
    list[str] | None, _words("--deny-principal", "Deny User:NAME. Repeatable.", _WHO, "PRINCIPAL")
]
AllowedHosts = Annotated[
    list[str] | None,
    _words("--allow-host", "Only from this address. Repeatable.", _WHO, "ADDRESS"),
]
DeniedHosts = Annotated[
    list[str] | None, _words("--deny-host", "Only from this address. Repeatable.", _WHO, "ADDRESS")
]
Principals = Annotated[
    list[str] | None,
    _words("--principal", "ACLs of User:NAME, allowed or denied. Repeatable.", _WHO, "PRINCIPAL"),
]
Operations = Annotated[
    list[str] | None,
    _words("--operation", "read, write, describe, ... or all. Repeatable.", _WHAT, "OPERATION"),
]
Producer = Annotated[
    bool, typer.Option("--producer", help="All operations of a producer.", rich_help_panel=_WHAT)
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="All operations of a consumer.", rich_help_panel=_WHAT)
]
Idempotent = Annotated[
    bool,
    typer.Option(
        "--idempotent",
        help="With --producer: for brokers before Kafka 3.0.",
        rich_help_panel=_WHAT,
    ),
]


@app.callback()
def _group() -> None:
    """List, add, remove and explain ACLs. Brokers need the setting authorizer.class.name."""


@app.command(
    "list",
    epilog=examples(
        "headrace acls list",
        "headrace acls list --topic orders --resource-pattern-type match",
        "headrace acls list --principal User:alice --json",
    ),
)
def list_acls(
    topic: Topics = None,
    group: Groups = None,
    cluster: ClusterFlag = False,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user_principal: UserPrincipals = None,
    pattern: FilterPattern = "any",
    principal: Principals = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """List ACLs: all, or those of resources and principals."""
    from headrace.cli import client
    from headrace.cli.security.acl_rules import AclOptions, make_filters
    from headrace.client.acls import describe_acls

    options = AclOptions(
        topic or (), group or (), cluster, transactional_id or (), delegation_token or (),
        user_principal or (), pattern,
    )  # fmt: skip
    filters = make_filters(options, principal or ())
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        found = sorted({acl for one in filters for acl in describe_acls(connected, one)})
    if not found and not as_json:
        output.note("No matching ACLs.")
    else:
        _print(found, as_json=as_json)


@app.command(
    epilog=examples(
        "headrace acls add --allow-principal User:alice --producer --topic orders",
        "headrace acls add --allow-principal User:bob --consumer --topic orders --group billing",
        "headrace acls add --allow-principal User:carol --operation read --operation describe "
        "--topic logs- --resource-pattern-type prefixed",
        "headrace acls add --deny-principal User:eve --deny-host 10.0.0.7 --topic '*'",
    )
)
def add(
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topics = None,
    group: Groups = None,
    cluster: ClusterFlag = False,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user_principal: UserPrincipals = None,
    pattern: Pattern = "literal",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Add ACLs, by default for all operations."""
    from headrace.cli import client
    from headrace.cli.security.acl_rules import AclOptions, Roles, make_acls
    from headrace.client.acls import create_acls

    acls = make_acls(
        AclOptions(
            topic or (), group or (), cluster, transactional_id or (), delegation_token or (),
            user_principal or (), pattern, allow_principal or (), deny_principal or (),
            allow_host or (), deny_host or (), operation or (),
            Roles(producer, consumer, idempotent),
        )
    )  # fmt: skip
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        create_acls(connected, acls)
    if not as_json:
        output.note(f"Added {_count(acls)}:")
    _print(acls, as_json=as_json)


@app.command(
    epilog=examples(
        "headrace acls remove --allow-principal User:alice --producer --topic orders",
        "headrace acls remove --principal User:alice --yes",
        "headrace acls remove --topic orders --resource-pattern-type any --yes",
    )
)
def remove(
    principal: Principals = None,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topics = None,
    group: Groups = None,
    cluster: ClusterFlag = False,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user_principal: UserPrincipals = None,
    pattern: FilterPattern = "literal",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Remove the ACLs that match the options; a missing option matches everything.

    The ACLs are shown first, and removed after a confirmation or with --yes.
    """
    from headrace.cli import client
    from headrace.cli.security.acl_rules import AclOptions, Roles, make_filters
    from headrace.client.acls import delete_acls, describe_acls
    from headrace.security.acls import AclFilter

    options = AclOptions(
        topic or (), group or (), cluster, transactional_id or (), delegation_token or (),
        user_principal or (), pattern, allow_principal or (), deny_principal or (),
        allow_host or (), deny_host or (), operation or (), Roles(producer, consumer, idempotent),
    )  # fmt: skip
    filters = make_filters(options, principal or ())
    if filters == [AclFilter()]:
        raise bad_usage("no ACLs selected", "Specify resources, principals or operations.")
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        found = sorted({acl for one in filters for acl in describe_acls(connected, one)})
        if not found:
            raise not_found("no matching ACLs", "`headrace acls list` shows all ACLs.")
        if not yes:
            _confirm(found)
        removed = delete_acls(connected, filters)
    if not as_json:
        output.note(f"Removed {_count(removed)}:")
    _print(removed, as_json=as_json)


@app.command(
    epilog=examples(
        "headrace acls explain alice write topic orders",
        "headrace acls explain User:bob read group billing --host 10.0.0.7",
        "headrace acls explain carol create cluster",
    )
)
def explain(
    principal: Annotated[str, typer.Argument(metavar="USER", help="The user's name.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, create, ...")],
    resource_type: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="topic, group, cluster, transactional-id, ..."),
    ],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The resource.")] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="The client's address.",
            show_default="an address without ACLs",
        ),
    ] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show whether a user may perform an operation, and which ACL decides.

    The exit code is 0 if it is allowed and 1 if it is not.
    """
    from headrace.cli import client
    from headrace.cli.security.acl_rules import operation_word, principal_name, word
    from headrace.security.acls import CLUSTER_NAME, SUPPORTED, ResourceType

    wanted = operation_word(operation)
    kind = word(ResourceType, resource_type, "a resource type", SUPPORTED)
    if name is None:
        if kind is not ResourceType.CLUSTER:
            raise bad_usage(
                f"the name of the {kind.name.lower()} is missing", "Add it as the last argument."
            )
        name = CLUSTER_NAME
    if wanted not in SUPPORTED[kind]:
        raise bad_usage(f"a {kind.name.lower()} has no operation {wanted.name.lower()}")
    who = principal_name(principal)
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        authorizer, told = _authorizer(connected)
    decision = authorizer.decide(who, host, wanted, kind, name)
    if as_json:
        output.print_json(_explained(who, host, wanted.name, kind.name, name, decision))
    else:
        verb = "may" if decision.allowed else "may not"
        print(f"{who} {verb} {wanted.name} {kind.name} {name}: {decision.reason}")
        if not told:
            output.note(
                "The values of super.users and allow.everyone.if.no.acl.found are not known: "
                "a super user may perform every operation."
            )
    if not decision.allowed:
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "headrace acls suggest headrace-data/audit.log",
        "headrace acls suggest audit.log --principal User:alice --json",
    )
)
def suggest(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An audit log (headrace.audit.file); - is stdin.")
    ],
    principal: Principals = None,
    as_json: AsJson = False,
) -> None:
    """Suggest ACLs for operations that brokers have denied, from their audit log.

    Nothing is changed: review the commands, and run those that you agree with.
    """
    from headrace.cli.security.acl_rules import principal_name
    from headrace.cli.security.acl_suggestions import suggest as suggestions

    try:
        if file == "-":
            found = suggestions(sys.stdin)
        else:
            with open(file, encoding="utf-8", errors="replace") as lines:
                found = suggestions(lines)
    except OSError as error:
        raise bad_usage(f"{file}: {error.strerror}") from None
    wanted = {principal_name(one) for one in principal or ()}
    chosen = [one for one in found if not wanted or one.principal in wanted]
    if as_json:
        output.print_json([{**one._asdict(), "command": one.command} for one in chosen])
    elif not chosen:
        output.note("The log has no denials that an ACL would allow.")
    for one in () if as_json else chosen:
        if one.command is not None:
            print(one.command)
        else:
            what = f"{', '.join(one.operations)} {one.resource_type} {one.resource_name}"
            print(f"# {one.principal} {what}: {one.denied_by}")


def _explained(
    who: str, host: str, operation: str, kind: str, name: str, decision: "Authorization"
) -> dict[str, object]:
    return {
        "principal": who,
        "host": host or None,
        "operation": operation,
        "resource_type": kind,
        "resource_name": name,
        "allowed": decision.allowed,
        "reason": decision.reason,
        "acl": None if decision.acl is None else _row(decision.acl),
    }


def _authorizer(connected: "Connected") -> "tuple[Authorizer, bool]":
    """The authorizer with the cluster's ACLs, and whether its settings are known."""
    from headrace.client.acls import describe_acls
    from headrace.client.configs import describe_configs
    from headrace.errors import KafkaError
    from headrace.security.acls import AclEntry, ResourcePattern
    from headrace.security.authorizer import Authorizer as Rules
    from headrace.types import ConfigResourceType

    acls: dict[ResourcePattern, list[AclEntry]] = {}
    for acl in describe_acls(connected):
        acls.setdefault(acl.resource, []).append(acl.entry)
    broker = str(min(connected.brokers()))
    try:
        configs = describe_configs(connected, ConfigResourceType.BROKER, broker)
    except KafkaError:  # the user may list ACLs, but not configs
        configs = []
    values = {one.name: one.value for one in configs}
    super_users = values.get("super.users")
    return Rules(
        acls,
        [one.strip() for one in (super_users or "").split(";")],
        allow_without_acl=values.get("allow.everyone.if.no.acl.found") == "true",
    ), super_users is not None


def _row(acl: "AclBinding") -> dict[str, str]:
    return {
        "principal": acl.entry.principal,
        "host": acl.entry.host,
        "permission": acl.entry.permission.name,
        "operation": acl.entry.operation.name,
        "resource_type": acl.resource.type.name,
        "pattern_type": acl.resource.pattern.name,
        "resource_name": acl.resource.name,
    }


def _print(acls: "Sequence[AclBinding]", *, as_json: bool) -> None:
    from rich.markup import escape

    rows = [_row(acl) for acl in acls]
    if as_json:
        output.print_json(rows)
        return
    output.print_table(
        ("Principal", "Host", "Permission", "Operation", "Resource", "Pattern", "Name"),
        [tuple(escape(text) for text in row.values()) for row in rows],
    )


def _count(acls: "Sequence[AclBinding]") -> str:
    return f"{len(acls)} ACL{'' if len(acls) == 1 else 's'}"


def _confirm(acls: "Sequence[AclBinding]") -> None:
    if not sys.stdin.isatty():
        raise bad_usage(
            f"will not remove {_count(acls)} without confirmation", "Add --yes to confirm."
        )
    for acl in acls:
        output.note(str(acl))
    if not typer.confirm(f"Remove {_count(acls)}?", err=True):
        raise Failure("no ACL was removed")
