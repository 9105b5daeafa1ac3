"""Subjects and their versions: list, look up, register, delete; and compatibility checks."""

import asyncio
import json

from headrace.registry import decisions, failures, submission
from headrace.registry.call import Call
from headrace.registry.guid import guid_of
from headrace.registry.records import Json, Version, content_json


def version_json(version: Version) -> Json:
    """A version as in a response."""
    found: Json = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        "guid": guid_of(version.content),
        **content_json(version.content),
    }
    if version.deleted:
        found["deleted"] = True
    return found


async def shown(call: Call, version: Version) -> Json:
    """A version in the format of the query parameter."""
    found = version_json(version)
    if form := call.text("format"):
        found["schema"] = await call.registry.formatted(version.subject, version.content, form)
    return found


async def list_subjects(call: Call) -> object:
    found = await call.registry.subjects(
        call.subject_prefix(":*:"),
        deleted=call.flag("deleted"),
        deleted_only=call.flag("deletedOnly"),
    )
    return call.page(found)


async def look_up(call: Call) -> object:
    subject = call.subject
    deleted = call.flag("deleted")
    found = await call.registry.look_up(
        subject,
        submission.from_json(call.json()),
        normalize=call.flag("normalize"),
        deleted=deleted,
    )
    if found is None:
        if not call.registry.state.has_subject(subject, deleted=deleted):
            raise failures.subject_not_found(subject)
        raise failures.schema_not_found()
    return await shown(call, found)


async def list_versions(call: Call) -> object:
    subject, state = call.subject, call.registry.state
    only_deleted = call.flag("deletedOnly")
    with_deleted = only_deleted or call.flag("deleted")
    if not state.has_subject(subject, deleted=with_deleted):
        raise failures.subject_not_found(subject)
    found = state.versions(subject, deleted=with_deleted)
    return call.page([each.version for each in found if each.deleted or not only_deleted])


def chosen_version(call: Call, *, deleted: bool) -> Version:
    """The version in the path; the subject may be an alias."""
    state = call.registry.state
    subject, number = call.subject, call.version
    alias = state.configs.get(subject, {}).get("alias")
    if isinstance(alias, str) and alias:
        subject = alias
    found = state.version(subject, number, deleted=deleted)
    if found is None:
        if not state.has_subject(subject, deleted=deleted):
            raise failures.subject_not_found(subject)
        raise failures.version_not_found(number)
    return found


async def get_version(call: Call) -> object:
    return await shown(call, chosen_version(call, deleted=call.flag("deleted")))


async def get_version_schema(call: Call) -> object:
    found = await shown(call, chosen_version(call, deleted=call.flag("deleted")))
    return as_document(str(found["schema"]))


def as_document(text: str) -> object:
    """The schema without an envelope: a JSON document, or a string if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def get_referrers(call: Call) -> object:
    found = chosen_version(call, deleted=True)
    others = call.registry.state.referred_by(
        (found.subject, found.version), deleted=call.flag("deleted")
    )
    return call.page(sorted({each.id for each in others}))


async def get_latest_with_metadata(call: Call) -> object:
    """The latest version whose metadata has all the properties in the query."""
    subject, deleted = call.subject, call.flag("deleted")
    wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
    versions = call.registry.state.versions(subject, deleted=deleted)
    if not versions:
        raise failures.subject_not_found(subject)
    for version in reversed(versions):
        metadata = json.loads(version.content.metadata or "{}")
        properties = metadata.get("properties") or {}
        if all(properties.get(name) == value for name, value in wanted.items()):
            return await shown(call, version)
        await asyncio.sleep(0)
    raise failures.schema_not_found()


async def register(call: Call) -> object:
    subject = call.subject
    wanted = submission.from_json(call.json())
    return await call.registry.register(subject, wanted, normalize=call.flag("normalize"))


async def delete_subject(call: Call) -> object:
    subject, permanent = call.subject, call.flag("permanent")
    return await call.registry.write(
        lambda state: decisions.delete_subject(state, subject, permanent=permanent)
    )


async def delete_version(call: Call) -> object:
    subject, number, permanent = call.subject, call.version, call.flag("permanent")
    return await call.registry.write(
        lambda state: decisions.delete_version(state, subject, number, permanent=permanent)
    )


async def check_version(call: Call) -> object:
    """Checks against one version; any schema is compatible with a subject without versions."""
    subject, number = call.subject, call.version
    wanted = submission.from_json(call.json())
    against = call.registry.state.version(subject, number)
    if against is None and number != -1:
        raise failures.version_not_found(number)
    return await _check(call, subject, wanted, against)


async def check_subject(call: Call) -> object:
    """Checks against the versions that registration checks."""
    return await _check(call, call.subject, submission.from_json(call.json()), None)


async def _check(
    call: Call, subject: str, wanted: submission.Submission, against: Version | None
) -> Json:
    verbose = call.flag("verbose")
    try:
        problems = await call.registry.check(subject, wanted, against)
    except failures.RegistryError as error:
        if not verbose or error.code != failures.INVALID_SCHEMA:
            raise
        problems = [error.message]
    answer: Json = {"is_compatible": not problems}
    if verbose:
        answer["messages"] = list(problems)
    return answer
