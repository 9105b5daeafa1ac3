"""The JSON body of a request that registers, looks up or checks a schema."""

from dataclasses import dataclass, replace

from headrace.registry import failures
from headrace.registry.names import within
from headrace.registry.records import AVRO, Json, Reference, sorted_json
from headrace.registry.state import RegistryState

HIGHEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted schema. Version 0 and id -1 mean that none was given."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    version: int = 0
    id: int = -1


def from_json(body: object) -> Submission:
    """Parses the body of a request; raises RegistryError 422 if a field is invalid."""
    if not isinstance(body, dict):
        raise failures.unprocessable("The body must be a JSON object with the field 'schema'")
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise failures.invalid_schema("The field 'schema' must be a non-empty string")
    kind = body.get("schemaType") or AVRO
    if not isinstance(kind, str):
        raise failures.invalid_schema("The field 'schemaType' must be a string")
    return Submission(
        kind=kind.upper(),
        text=text,
        references=_references(body.get("references")),
        metadata=_object(body, "metadata"),
        rule_set=_object(body, "ruleSet"),
        version=_number(body, "version", 0),
        id=_number(body, "id", -1),
    )


def resolved(submission: Submission, state: RegistryState, subject: str) -> Submission:
    """The submission with references to the latest version (-1) resolved to version numbers."""
    if all(each.version != -1 for each in submission.references):
        return submission
    made = []
    for each in submission.references:
        found = state.version(within(subject, each.subject), each.version)
        made.append(each if found is None else replace(each, version=found.version))
    return replace(submission, references=tuple(made))


def with_text(submission: Submission, text: str) -> Submission:
    return replace(submission, text=text)


def _references(value: object) -> tuple[Reference, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise failures.unprocessable("The field 'references' must be a list")
    found = []
    for each in value:
        name, subject, version = (
            (each.get("name"), each.get("subject"), each.get("version"))
            if isinstance(each, dict)
            else (None, None, None)
        )
        if not isinstance(name, str) or not isinstance(subject, str) or not _is_whole(version):
            raise failures.unprocessable(
                "A reference needs a 'name', a 'subject' and a 'version', which is a number"
            )
        assert isinstance(version, int)
        found.append(Reference(name, subject, version))
    return tuple(found)


def _object(body: Json, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise failures.unprocessable(f"The field {name!r} must be a JSON object")
    return sorted_json(value)


def _number(body: Json, name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not _is_whole(value):
        raise failures.unprocessable(f"The field {name!r} must be a whole number below 2^31")
    assert isinstance(value, int)
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= HIGHEST
