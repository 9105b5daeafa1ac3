"""`headrace schemas`: the subjects and schemas of a registry."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import AsJson, RegistryOption, examples
from headrace.cli.schemas.registry_client import (
    DEFAULT_REGISTRY,
    as_dict,
    as_list,
    schema_client,
)
from headrace.schemas.formats import FORMATS

if TYPE_CHECKING:
    from headrace.schemas.client import SchemaClient

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace schemas list",
        "headrace schemas register clicks-value click.avsc",
        "headrace schemas check clicks-value click.avsc          exit code 1 if it is incompatible",
        "headrace schemas diff clicks-value --from 1 --to 2",
        "headrace schemas config clicks-value --compatibility FULL",
    ),
)


KINDS = sorted(name.lower() for name in FORMATS)
KIND_OF_SUFFIX = {each.file_suffix: each.name for each in FORMATS.values()}


def _kind(word: str) -> str:
    if word not in KINDS:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(KINDS)}")
    return word.upper()


SubjectArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The subject, such as TOPIC-value or TOPIC-key.")
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="File with the schema.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        "-t",
        help="Type of the schema.",
        show_default="by the file's name",
        parser=_kind,
        autocompletion=lambda: KINDS,
        metavar=f"[{'|'.join(KINDS)}]",
    ),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A referenced schema; repeatable.",
    ),
]
VersionOption = Annotated[
    str, typer.Option("--version", "-v", metavar="N", help="A version, or latest.")
]


@app.callback()
def _group() -> None:
    """Schemas of topics: list, get, register, check, compare, delete."""


@app.command("list", epilog=examples("headrace schemas list --prefix clicks"))
def list_subjects(
    prefix: Annotated[
        str, typer.Option("--prefix", "-p", help="Only subjects with this prefix.")
    ] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Include soft-deleted subjects.")
    ] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """List subjects with their type, versions and latest id."""
    with schema_client(registry) as client:
        found = as_list(client.get("schemas", subjectPrefix=f":*:{prefix}", deleted=deleted))
    rows: dict[str, dict[str, object]] = {}
    for each in map(as_dict, found):
        row = rows.setdefault(str(each["subject"]), {"subject": each["subject"], "versions": []})
        versions = row["versions"]
        assert isinstance(versions, list)
        versions.append(each["version"])
        row["type"], row["id"] = each.get("schemaType", "AVRO"), each["id"]
    if as_json:
        output.print_json(list(rows.values()))
        return
    output.print_table(
        ["subject", "type", "versions", "latest id"],
        [
            [str(r["subject"]), str(r["type"]), _numbers(r["versions"]), str(r["id"])]
            for r in rows.values()
        ],
        numbers={"latest id"},
    )


def _numbers(versions: object) -> str:
    assert isinstance(versions, list)
    shown = [str(each) for each in versions]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:2], "...", *shown[-2:]])


@app.command(
    epilog=examples("headrace schemas get clicks-value", "headrace schemas get --id 7 --json")
)
def get(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="The subject, such as TOPIC-value.")
    ] = None,
    version: VersionOption = "latest",
    schema_id: Annotated[int | None, typer.Option("--id", help="The schema id.")] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Show a schema, by subject and version or by id."""
    if (subject is None) == (schema_id is None):
        raise bad_usage("specify either a SUBJECT or an --id")
    with schema_client(registry) as client:
        found = _fetch(client, subject, version, schema_id)
    if as_json:
        output.print_json(found)
    else:
        print(_pretty(found))


def _fetch(
    client: "SchemaClient", subject: str | None, version: str, schema_id: int | None = None
) -> dict[str, object]:
    if subject is None:
        return as_dict(client.get("schemas", "ids", str(schema_id)))
    return as_dict(client.get("subjects", subject, "versions", version))


def _pretty(found: dict[str, object]) -> str:
    text = str(found["schema"])
    form = FORMATS.get(str(found.get("schemaType", "AVRO")))
    if form is None or not form.is_json:
        return text.rstrip("\n")
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def submission(file: str, kind: str | None, references: list[str] | None) -> dict[str, object]:
    """The request body for a schema file."""
    path = Path(file)
    kind = kind or KIND_OF_SUFFIX.get(path.suffix)
    if kind is None:
        raise bad_usage(f"{file}: the type is not clear from the name", "Add --type.")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise bad_usage(f"cannot read {file}: {reason}") from None
    made: dict[str, object] = {"schema": text, "schemaType": kind}
    if references:
        made["references"] = [_reference(word) for word in references]
    return made


def _reference(word: str) -> dict[str, object]:
    name, equals, target = word.partition("=")
    subject, colon, version = target.rpartition(":")
    if not equals or not colon or not version.lstrip("-").isdecimal():
        raise bad_usage(f"--reference {word!r} is not NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


@app.command(epilog=examples("headrace schemas register clicks-value click.avsc"))
def register(
    subject: SubjectArgument,
    file: FileArgument,
    kind: KindOption = None,
    reference: ReferenceOption = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Normalize the schema.")] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Register a schema; a registered one keeps its id and version."""
    body = submission(file, kind, reference)
    with schema_client(registry) as client:
        path = ("subjects", subject, "versions")
        made = as_dict(client.post(*path, body=body, normalize=normalize))
    if as_json:
        output.print_json({"subject": subject, "version": made.get("version"), "id": made["id"]})
    else:
        output.note(f"{subject} version {made.get('version', '?')} has id {made['id']}")


@app.command(epilog=examples("headrace schemas check clicks-value click.avsc"))
def check(
    subject: SubjectArgument,
    file: FileArgument,
    kind: KindOption = None,
    reference: ReferenceOption = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", "-v", metavar="N", help="Check only against this version, or latest."
        ),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Check whether a schema is compatible, and show the incompatible fields."""
    body = submission(file, kind, reference)
    path = ["compatibility", "subjects", subject, "versions", *([version] if version else [])]
    with schema_client(registry) as client:
        told = as_dict(client.post(*path, body=body, verbose=True))
    problems = [str(each) for each in as_list(told.get("messages") or [])]
    if as_json:
        output.print_json({"compatible": told["is_compatible"], "problems": problems})
        raise typer.Exit(0 if told["is_compatible"] else 1)
    if not told["is_compatible"]:
        raise Failure(
            f"{file} is not compatible with {subject}:\n" + "\n".join(f"  {p}" for p in problems),
            code="INCOMPATIBLE",
        )
    output.note(f"{file} is compatible with {subject}")


@app.command(epilog=examples("headrace schemas diff clicks-value --from 1 --to latest"))
def diff(
    subject: SubjectArgument,
    start: Annotated[
        str | None, typer.Option("--from", metavar="N", show_default="the one before")
    ] = None,
    end: Annotated[str, typer.Option("--to", metavar="N", help="A version, or latest.")] = "latest",
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Show the changes between two versions, and their effect on compatibility."""
    import difflib

    with schema_client(registry) as client:
        new = _fetch(client, subject, end)
        if start is None:
            numbers = [int(str(n)) for n in as_list(client.get("subjects", subject, "versions"))]
            earlier = [n for n in numbers if n < int(str(new["version"]))]
            if not earlier:
                raise bad_usage(f"{subject} has no version before {new['version']}", "Add --from.")
            start = str(earlier[-1])
        old = _fetch(client, subject, start)
    lines = list(
        difflib.unified_diff(
            _pretty(old).splitlines(),
            _pretty(new).splitlines(),
            f"{subject} version {old['version']}",
            f"{subject} version {new['version']}",
            lineterm="",
        )
    )
    if as_json:
        output.print_json({"from": old["version"], "to": new["version"], "diff": lines})
        return
    for line in lines:
        print(line)


@app.command(epilog=examples("headrace schemas delete clicks-value --yes"))
def delete(
    subject: SubjectArgument,
    version: Annotated[
        str | None,
        typer.Option("--version", "-v", metavar="N", help="Only this version, or latest."),
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Delete permanently; needs a soft deletion first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Delete a subject or a version: first softly, then permanently with --permanent."""
    what = subject if version is None else f"{subject} version {version}"
    if not yes and not typer.confirm(
        f"Delete {what}{' permanently' if permanent else ''}?", err=True
    ):
        raise typer.Exit(1)
    path = ["subjects", subject, *([] if version is None else ["versions", version])]
    with schema_client(registry) as client:
        gone = client.delete(*path, permanent=permanent)
    numbers = gone if isinstance(gone, list) else [gone]
    if as_json:
        output.print_json({"subject": subject, "versions": numbers, "permanent": permanent})
    else:
        output.note(f"deleted {subject} version {', '.join(map(str, numbers))}")


@app.command(
    epilog=examples(
        "headrace schemas config",
        "headrace schemas config clicks-value --compatibility FULL_TRANSITIVE",
        "headrace schemas config clicks-value --unset",
    )
)
def config(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", show_default="the global settings")
    ] = None,
    compatibility: Annotated[
        str | None,
        typer.Option("--compatibility", "-c", metavar="LEVEL", help="none, backward, forward, "
                     "full, or one of the last three with _transitive."),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Reset to the global settings.")] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show or change the settings of a subject, or the global ones."""
    path = ["config", *([] if subject is None else [subject])]
    with schema_client(registry) as client:
        if unset:
            client.delete(*path)
        elif compatibility is not None:
            client.put(*path, body={"compatibility": compatibility.upper()})
        found = as_dict(client.get(*path, defaultToGlobal=True))
    if as_json:
        output.print_json(found)
    else:
        output.print_facts({name: _fact(value) for name, value in found.items()})


def _fact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
