"""Quotas of users, client ids and addresses: list them and change them. All calls are retried."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.client.cluster import Cluster
from headrace.client.errors import check
from headrace.wire.primitives import f64, i8

Entity: TypeAlias = Mapping[str, str | None]
"""Names by entity type (`user`, `client-id`, `ip`); None is the default of the type."""

_EXACT, _DEFAULT = 0, 1


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of one entity."""

    entity: Entity
    values: Mapping[str, float]


def list_quotas(cluster: Cluster, entity: Entity) -> list[EntityQuotas]:
    """The quotas of all entities that have at least these names."""
    from kio.schema.describe_client_quotas.v1.request import (
        ComponentData,
        DescribeClientQuotasRequest,
    )
    from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse

    components = tuple(
        ComponentData(
            entity_type=kind, match_type=i8(_DEFAULT if name is None else _EXACT), match=name
        )
        for kind, name in entity.items()
    )
    request = DescribeClientQuotasRequest(components=components, strict=False)

    def attempt() -> list[EntityQuotas]:
        answer = cluster.ask(request, DescribeClientQuotasResponse)
        check(int(answer.error_code), "listing quotas", answer.error_message)
        return [
            EntityQuotas(
                {part.entity_type: part.entity_name for part in found.entity},
                {one.key: float(one.value) for one in found.values},
            )
            for found in answer.entries or ()
        ]

    return cluster.retry("listing quotas", attempt)


def alter_quotas(
    cluster: Cluster, entity: Entity, to_set: Mapping[str, float], to_remove: Iterable[str] = ()
) -> None:
    """Set and remove quotas of an entity, all or none; its other quotas are not changed."""
    from kio.schema.alter_client_quotas.v1.request import (
        AlterClientQuotasRequest,
        EntityData,
        EntryData,
        OpData,
    )
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse

    ops = [OpData(key=key, value=f64(value), remove=False) for key, value in to_set.items()]
    ops += [OpData(key=key, value=f64(0.0), remove=True) for key in to_remove]
    parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    request = AlterClientQuotasRequest(
        entries=(EntryData(entity=parts, ops=tuple(ops)),), validate_only=False
    )
    what = f"quotas of {shown(entity)}"

    def attempt() -> None:
        for row in cluster.ask_controller(request, AlterClientQuotasResponse).entries:
            check(int(row.error_code), what, row.error_message)

    cluster.retry(f"changing {what}", attempt)


def shown(entity: Entity) -> str:
    """A description of an entity for messages."""
    return ", ".join(
        f"all other {kind}s" if name is None else f"{kind} {name!r}"
        for kind, name in sorted(entity.items(), reverse=True)
    )
