"""Schemas: the console passes requests on to its registry, and adds what pages need."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.client.errors import ClientError
from headrace.console.console_request import ConsoleRequest
from headrace.schemas.client import SchemaClient, SchemaRegistryError
from headrace.service.errors import HttpError

T = TypeVar("T")


async def list_subjects(request: ConsoleRequest) -> object:
    """Names of all subjects, and the registry's own settings."""
    return await _ask(
        request,
        lambda registry: {
            "subjects": registry.get("subjects"),
            "types": registry.get("schemas", "types"),
            "compatibility": _value(registry.get("config"), "compatibilityLevel"),
            "mode": _value(registry.get("mode"), "mode"),
        },
    )


async def get_subject(request: ConsoleRequest) -> object:
    """All versions of a subject with their texts, the newest first."""
    subject = request.path["subject"]

    def read(registry: SchemaClient) -> object:
        versions = registry.get("subjects", subject, "versions")
        assert isinstance(versions, list)
        return {
            "subject": subject,
            "compatibility": _value(
                registry.get("config", subject, defaultToGlobal="true"), "compatibilityLevel"
            ),
            "versions": [
                registry.get("subjects", subject, "versions", str(version))
                for version in sorted(versions, reverse=True)
            ],
        }

    return await _ask(request, read)


async def check_schema(request: ConsoleRequest) -> object:
    """Whether a schema is compatible with the versions of a subject, and why not."""
    subject = request.path["subject"]
    body = _schema(request)
    try:
        return await _ask(
            request,
            lambda registry: registry.post(
                "compatibility", "subjects", subject, "versions", body=body, verbose="true"
            ),
        )
    except HttpError as error:
        if error.status == 404:
            return {"is_compatible": True, "messages": ["The subject has no versions yet."]}
        raise


async def register_schema(request: ConsoleRequest) -> object:
    """Registers a new version of a subject."""
    subject, body = request.path["subject"], _schema(request)
    return await _ask(
        request, lambda registry: registry.post("subjects", subject, "versions", body=body)
    )


async def change_compatibility(request: ConsoleRequest) -> object:
    """Sets the compatibility level of a subject."""
    subject, level = request.path["subject"], request.field("compatibility")
    return await _ask(
        request, lambda registry: registry.put("config", subject, body={"compatibility": level})
    )


async def delete_version(request: ConsoleRequest) -> object:
    """Deletes a version of a subject; its id stays readable until it is deleted for good."""
    subject, version = request.path["subject"], request.path["version"]
    return await _ask(
        request, lambda registry: registry.delete("subjects", subject, "versions", version)
    )


def _schema(request: ConsoleRequest) -> dict[str, object]:
    body = request.fields()
    references = body.get("references", [])
    if not isinstance(references, list):
        raise HttpError(400, "The field references must be a list")
    return {
        "schema": request.field("schema"),
        "schemaType": str(body.get("type") or "AVRO"),
        "references": references,
    }


async def _ask(request: ConsoleRequest, question: Callable[[SchemaClient], T]) -> T:
    """What the registry answers; the browser's path never becomes part of its address."""
    registry = request.console.registry
    if registry is None:
        raise HttpError(501, "the console was started without --registry")
    try:
        return await asyncio.to_thread(question, registry)
    except SchemaRegistryError as error:
        raise HttpError(error.status or 502, error.reason or str(error)) from None
    except ClientError as error:
        raise HttpError(502, str(error)) from None


def _value(answer: object, name: str) -> object:
    return answer.get(name) if isinstance(answer, dict) else None
