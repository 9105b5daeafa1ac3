"""The registry as a service of the chassis: routes, media types, health and metrics."""

from functools import partial

from headrace.registry import limits
from headrace.registry.call import Call
from headrace.registry.routes import ROUTES
from headrace.registry.service import Registry
from headrace.service.http_service import JSON, Health, HttpService, ServiceMetric

V1 = "application/vnd.schemaregistry.v1+json"
RESPONSE_TYPES = (V1, "application/vnd.schemaregistry+json", JSON)
BODY_TYPES = frozenset({*RESPONSE_TYPES, "application/octet-stream"})


def registry_service(registry: Registry) -> HttpService[Call]:
    """The HTTP service of a registry."""
    location = registry.location
    return HttpService(
        name="registry",
        summary=f"schemas in {location.topic} at {location.bootstrap}",
        routes=ROUTES,
        make_request=partial(Call, registry),
        start=registry.start,
        stop=registry.stop,
        health=partial(health, registry),
        metrics=partial(metrics, registry),
        response_types=RESPONSE_TYPES,
        body_types=BODY_TYPES,
        body_bytes=limits.BODY_BYTES,
    )


def health(registry: Registry) -> Health:
    """Ready while the topic is read. Requests are accepted only after the first read to its end."""
    running = registry.reader.is_running
    return Health(
        problem="" if running else "The schemas topic is no longer read; restart the registry",
        details={
            "topic": registry.location.topic,
            "offset": registry.reader.next_offset,
            "subjects": len(registry.state.subjects),
        },
    )


def metrics(registry: Registry) -> list[ServiceMetric]:
    """The size of the state, the position in the topic, and changes of the writer."""
    state = registry.state
    schemas = sum(len(ids.by_id) for ids in state.contexts.values())
    versions = sum(len(versions) for versions in state.subjects.values())
    offset, changes = registry.reader.next_offset, registry.writer.changes
    return [
        ServiceMetric("subjects", "Subjects.", len(state.subjects)),
        ServiceMetric("schemas", "Schemas, each counted once for each context.", schemas),
        ServiceMetric("versions", "Versions of all subjects.", versions),
        ServiceMetric("topic_offset", "Offset of the schemas topic that is read next.", offset),
        ServiceMetric(
            "writer_changes_total", "Times that this instance became the writer.", changes
        ),
    ]
