"""Decisions on writes: from the state and a request to the records and the response.

Pure functions: nothing is changed here. The caller writes the records; replaying them changes the
state.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.registry import compatibility, failures, submission
from headrace.registry.guid import guid_of
from headrace.registry.lookup import comparison, find_content
from headrace.registry.names import context_of, join
from headrace.registry.parsing import SchemaSource, needs
from headrace.registry.records import (
    Change,
    ClearSubject,
    Content,
    DeleteSubject,
    DropVersion,
    HighestIds,
    Json,
    PutConfig,
    PutMode,
    PutVersion,
    Version,
    content_json,
    sorted_json,
)
from headrace.registry.state import RegistryState
from headrace.registry.submission import Submission
from headrace.registry.work import CANONICAL, NORMALIZED, Answers

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
CONFIG_FIELDS = (
    "alias", "normalize", "validateFields", "validateRules", "compatibilityLevel",
    "compatibilityPolicy", "compatibilityGroup", "defaultMetadata", "overrideMetadata",
    "defaultRuleSet", "overrideRuleSet",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decision:
    """The response, and the records to write."""

    answer: object
    changes: tuple[Change, ...] = ()


def register(
    state: RegistryState, answers: Answers, subject: str, wanted: Submission, *, normalize: bool
) -> Decision:
    """Registers a schema under a subject: returns the existing version or creates a new one.

    Raises NeedsWork if the decision needs the result of a worker process.
    """
    mode = state.mode(subject)
    _check_registering(subject, mode, wanted)
    config = state.config(subject)
    wanted = submission.resolved(wanted, state, subject)
    text = answers.text(
        SchemaSource(
            wanted.kind, wanted.text, needs(state, subject, wanted.kind, wanted.references)
        ),
        NORMALIZED if normalize or config.get("normalize") else CANONICAL,
    )
    wanted = replace(wanted, text=text)
    importing = mode == "IMPORT"
    if not importing:
        wanted = _with_defaults(state, subject, wanted, config)
    found = find_content(state, subject, wanted) if wanted.version == 0 else None
    if found is not None and wanted.id in (-1, found.id):
        return Decision(registered_json(found))
    if not importing:
        _check_compatible(state, answers, subject, wanted, config)
    content = _content(wanted)
    schema_id = _choose_id(state, subject, wanted, content)
    number = wanted.version if wanted.version > 0 else state.next_version(subject)
    if number != state.next_version(subject) and not importing:
        raise failures.invalid_schema(
            f"Version {number} is not one more than the latest version of subject '{subject}'"
        )
    made = Version(subject, number, schema_id, content)
    replaced = tuple(
        DropVersion(subject, old.version)
        for old in state.versions(subject, deleted=True)
        if old.deleted
        and old.id == schema_id
        and old.version < number
        and not state.referred_by((subject, old.version), deleted=True)
    )
    return Decision(registered_json(made), (*replaced, PutVersion(made)))


def registered_json(version: Version) -> Json:
    """The response to a registration.

    Without the text: clients cache the schema in the form in which they sent it.
    """
    made = content_json(version.content)
    del made["schema"]
    guid = guid_of(version.content)
    return {"id": version.id, "version": version.version, "guid": guid, **made}


def _check_registering(subject: str, mode: str, wanted: Submission) -> None:
    if mode.startswith("READONLY"):
        raise failures.not_permitted(f"Subject {subject} is in read-only mode")
    if wanted.id >= 0 and mode != "IMPORT":
        raise failures.not_permitted(f"Subject {subject} is not in import mode")
    if wanted.id < 0 and mode == "IMPORT":
        raise failures.not_permitted(f"Subject {subject} is not in read-write mode")


def _with_defaults(
    state: RegistryState, subject: str, wanted: Submission, config: Mapping[str, object]
) -> Submission:
    """Metadata and rules: the client's or the previous version's, merged with the settings."""
    previous = state.version(subject, -1)
    metadata, rules = wanted.metadata, wanted.rule_set
    if previous is not None:
        metadata = metadata or previous.content.metadata
        rules = rules or previous.content.rule_set
    return replace(
        wanted,
        metadata=_merged(config.get("defaultMetadata"), metadata, config.get("overrideMetadata")),
        rule_set=_merged(config.get("defaultRuleSet"), rules, config.get("overrideRuleSet")),
    )


def _merged(default: object, own: str | None, override: object) -> str | None:
    if default is None and override is None:
        return own
    made: Json = {}
    for layer in (default, None if own is None else json.loads(own), override):
        for name, value in (layer or {}).items() if isinstance(layer, dict) else ():
            below = made.get(name)
            if isinstance(below, dict) and isinstance(value, dict):
                made[name] = {**below, **value}
            elif value is not None:
                made[name] = value
    return sorted_json(made)


def _check_compatible(
    state: RegistryState,
    answers: Answers,
    subject: str,
    wanted: Submission,
    config: Mapping[str, object],
) -> None:
    level = str(config["compatibilityLevel"])
    if level == "NONE":
        return
    if problems := answers.problems(comparison(state, subject, wanted)):
        raise failures.incompatible(subject, level, problems)


def _content(wanted: Submission) -> Content:
    return Content(wanted.kind, wanted.text, wanted.references, wanted.metadata, wanted.rule_set)


def _choose_id(state: RegistryState, subject: str, wanted: Submission, content: Content) -> int:
    context = context_of(subject)
    if wanted.id < 0:
        known = state.id_of(context, content)
        return state.highest_id(context) + 1 if known is None else known
    other = state.by_id(context, wanted.id)
    if other is not None and (other.kind, other.text) != (content.kind, content.text):
        raise failures.id_does_not_match(wanted.id)
    return wanted.id


def delete_version(state: RegistryState, subject: str, number: int, *, permanent: bool) -> Decision:
    """Soft-deletes a version, or permanently deletes one that is soft-deleted."""
    found = state.version(subject, number, deleted=permanent or number != -1)
    if found is None:
        if not state.has_subject(subject, deleted=True):
            raise failures.subject_not_found(subject)
        raise failures.version_not_found(number)
    _check_writable(state, subject)
    if not permanent and found.deleted:
        raise failures.version_soft_deleted(subject, found.version)
    place = (subject, found.version)
    if state.referred_by(place, deleted=permanent):
        raise failures.reference_exists(*place)
    if not permanent:
        return Decision(found.version, (PutVersion(replace(found, deleted=True)),))
    if not found.deleted:
        raise failures.version_not_soft_deleted(subject, found.version)
    changes: list[Change] = [DropVersion(*place), _highest(state)]
    if len(state.versions(subject, deleted=True)) == 1:
        changes += _forget_settings(state, subject)
    return Decision(found.version, tuple(changes))


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Decision:
    """Deletes all versions of a subject."""
    everything = state.versions(subject, deleted=True)
    if not everything:
        raise failures.subject_not_found(subject)
    chosen = everything if permanent else state.versions(subject)
    if not chosen:
        raise failures.subject_soft_deleted(subject)
    _check_writable(state, subject)
    for each in chosen:
        referrers = state.referred_by((subject, each.version), deleted=permanent)
        if any(other.subject != subject for other in referrers):
            raise failures.reference_exists(subject, each.version)
        if permanent and not each.deleted:
            raise failures.subject_not_soft_deleted(subject)
    numbers = [each.version for each in chosen]
    if not permanent:
        return Decision(numbers, (DeleteSubject(subject, numbers[-1]),))
    # The latest first: a version may refer to an earlier one of the same subject.
    drops = [DropVersion(subject, number) for number in reversed(numbers)]
    return Decision(numbers, (*drops, _highest(state), *_forget_settings(state, subject)))


def _check_writable(state: RegistryState, subject: str | None) -> None:
    if state.mode(subject).startswith("READONLY"):
        raise failures.not_permitted(f"Subject {subject} is in read-only mode")


def _highest(state: RegistryState) -> HighestIds:
    return HighestIds({context: ids.highest for context, ids in state.contexts.items()})


def _forget_settings(state: RegistryState, subject: str) -> list[Change]:
    changes: list[Change] = []
    if subject in state.modes:
        changes.append(PutMode(subject, None))
    if subject in state.configs:
        changes.append(PutConfig(subject, None))
    return changes


def set_config(state: RegistryState, scope: str | None, body: object) -> Decision:
    """Changes settings of a subject or a context, or global ones; fields not given are kept."""
    if not isinstance(body, dict):
        raise failures.unprocessable("The body must be a JSON object with 'compatibility'")
    _check_writable(state, scope)
    given = {name: body[name] for name in CONFIG_FIELDS if name in body}
    level = body.get("compatibility", body.get("compatibilityLevel"))
    if level is not None:
        if not isinstance(level, str) or level.upper() not in compatibility.LEVELS:
            raise failures.invalid_level(level)
        given["compatibilityLevel"] = level.upper()
    _check_config(given)
    made = {**state.configs.get(scope, {}), **given}
    made = {name: value for name, value in made.items() if value is not None}
    answer = {("compatibility" if k == "compatibilityLevel" else k): v for k, v in made.items()}
    return Decision(answer, (PutConfig(scope, made),))


def _check_config(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        wanted: type = str
        if name in ("normalize", "validateFields", "validateRules"):
            wanted = bool
        elif name.endswith(("Metadata", "RuleSet")):
            wanted = dict
        if value is not None and not isinstance(value, wanted):
            kind = {str: "a string", bool: "true or false", dict: "a JSON object"}[wanted]
            raise failures.unprocessable(f"The field {name!r} must be {kind}")


def delete_config(state: RegistryState, scope: str | None) -> Decision:
    found = state.configs.get(scope)
    if found is None and scope is not None:
        raise failures.subject_not_found(scope)
    _check_writable(state, scope)
    return Decision({"compatibilityLevel": "BACKWARD", **(found or {})}, (PutConfig(scope, None),))


def set_mode(state: RegistryState, scope: str | None, body: object, *, force: bool) -> Decision:
    """Sets the mode of a subject or a context, or the global mode."""
    mode = body.get("mode") if isinstance(body, dict) else None
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise failures.invalid_mode(mode)
    mode = mode.upper()
    changes: list[Change] = []
    if mode == "IMPORT" and state.mode(scope) != "IMPORT" and not force:
        changes += _clear_for_import(state, scope)
    return Decision({"mode": mode}, (*changes, PutMode(scope, mode)))


def _clear_for_import(state: RegistryState, scope: str | None) -> list[Change]:
    inside = [
        name
        for name in state.subjects
        if scope is None or name == scope or join(context_of(name), "") == scope
    ]
    if any(state.has_subject(name) for name in inside):
        raise failures.not_permitted("Cannot import since found existing subjects")
    places = [(name, each) for name in inside for each in sorted(state.subjects[name])]
    for place in places:
        if any(other.subject not in inside for other in state.referred_by(place, deleted=True)):
            raise failures.reference_exists(*place)
    return [*(DropVersion(*place) for place in places), ClearSubject(scope)]


def delete_mode(state: RegistryState, scope: str | None, *, recursive: bool) -> Decision:
    found = state.modes.get(scope)
    if found is None and not recursive:
        raise failures.subject_not_found(scope or "")
    scopes = [scope]
    if recursive:
        prefix = "" if scope is None else scope
        scopes += [each for each in state.modes if each and each != scope
                   and join(context_of(each), "") == prefix]  # fmt: skip
    changes = tuple(PutMode(each, None) for each in scopes if each in state.modes)
    return Decision({"mode": found}, changes)
