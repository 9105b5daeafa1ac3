"""Endpoints for schemas by id or GUID, and lists of schemas, types and contexts."""

from headrace.registry import failures
from headrace.registry.call import Call
from headrace.registry.guid import guid_of
from headrace.registry.names import DEFAULT_CONTEXT
from headrace.registry.records import Content, Json, Version, content_json
from headrace.registry.subjects_api import as_document, version_json
from headrace.schemas import formats
from headrace.service.slices import in_slices


def _content(call: Call) -> tuple[str, Content]:
    """The schema with the id in the path, and a subject with it (references are relative to it)."""
    state, context, schema_id = call.registry.state, call.context, call.schema_id
    found = state.by_id(context, schema_id)
    if found is None:
        raise failures.schema_not_found(schema_id)
    return state.places(context, schema_id, deleted=True)[0][0], found


async def _shown(call: Call, subject: str, content: Content) -> Json:
    found = {**content_json(content), "guid": guid_of(content)}
    if form := call.text("format"):
        found["schema"] = await call.registry.formatted(subject, content, form)
    return found


async def get_schema(call: Call) -> object:
    found = await _shown(call, *_content(call))
    if call.flag("fetchMaxId"):
        found["maxId"] = call.registry.state.highest_id(call.context)
    return found


async def get_schema_text(call: Call) -> object:
    return as_document(str((await _shown(call, *_content(call)))["schema"]))


async def get_subjects(call: Call) -> object:
    _content(call)
    places = call.registry.state.places(call.context, call.schema_id, deleted=call.flag("deleted"))
    return call.page(sorted({subject for subject, _ in places}))


async def get_versions(call: Call) -> object:
    _content(call)
    places = call.registry.state.places(call.context, call.schema_id, deleted=call.flag("deleted"))
    return call.page([{"subject": subject, "version": number} for subject, number in places])


async def get_by_guid(call: Call) -> object:
    guid = call.name("guid").lower()
    context, schema_id = call.registry.state.guids.get(guid, (DEFAULT_CONTEXT, -1))
    content = call.registry.state.by_id(context, schema_id)
    if content is None:
        raise failures.schema_not_found(call.name("guid")[:50])
    subject = call.registry.state.places(context, schema_id, deleted=True)[0][0]
    return await _shown(call, subject, content)


async def get_ids_of_guid(call: Call) -> object:
    found = call.registry.state.guids.get(call.name("guid").lower())
    if found is None:
        raise failures.schema_not_found(call.name("guid")[:50])
    return [{"context": found[0], "id": found[1]}]


async def list_schemas(call: Call) -> object:
    found: list[Version] = []
    deleted, latest_only = call.flag("deleted"), call.flag("latestOnly")
    prefix = call.subject_prefix(":*:")
    names = await call.registry.subjects(prefix, deleted=deleted, deleted_only=False)
    async for some in in_slices(names):
        for name in some:
            versions = call.registry.state.versions(name, deleted=deleted)
            found += versions[-1:] if latest_only else versions
    shown: list[Json] = []
    async for page in in_slices(call.page(found)):
        shown += map(version_json, page)
    return shown


async def list_types(_: Call) -> object:
    return list(formats.FORMATS)


async def list_contexts(call: Call) -> object:
    return call.page(sorted({DEFAULT_CONTEXT, *call.registry.state.contexts}))
