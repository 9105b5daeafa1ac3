"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0-1.

Quotas of users, client ids, their combinations, and addresses; the name null stands for the default
of its type. They are kept in the metadata store and apply on every broker
(`broker/quotas/throttling.py`).

v1 flexible. Not done: host names in entities of type ip; only addresses are accepted.
"""

from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

from kio.schema.alter_client_quotas.v1 import request as altering
from kio.schema.alter_client_quotas.v1 import response as altered
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.describe_client_quotas.v1.request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode, KafkaError
from headrace.security.quotas import CLIENT_ID, IP, USER, check_entity, check_value
from headrace.security.state import QuotaEntity, SecurityState
from headrace.wire.primitives import NO_ERROR, error, f64, respond

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_Parts: TypeAlias = tuple[tuple[str, str | None], ...]
_Results: TypeAlias = dict[_Parts, KafkaError | None]


# --- DescribeClientQuotas -------------------------------------------------------------------------


def describe_client_quotas(
    services: Services, request: DescribeClientQuotasRequest, _context: RequestContext
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that the filter matches."""
    try:
        names, types = _read_filter(request.components)
    except KafkaError as refused:
        return respond(
            partial(
                DescribeClientQuotasResponse,
                error_code=error(refused.code),
                error_message=refused.message,
                entries=None,
            )
        )
    entries = [
        EntryData(
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(ValueData(key=key, value=f64(value)) for key, value in quotas.items()),
        )
        for entity, quotas in services.metadata.image.security.quotas.items()
        if _matches(dict(entity), names, types, request.strict)
    ]
    return respond(
        partial(
            DescribeClientQuotasResponse,
            error_code=NO_ERROR,
            error_message=None,
            entries=tuple(entries),
        )
    )


def _read_filter(
    components: Iterable[ComponentData],
) -> tuple[dict[str, str | None], set[str]]:
    """The required names of entities by type, and the types with any name."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for one in components:
        kind = one.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in names or kind in types:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Entity type {kind} cannot appear more than once in the filter.",
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if one.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}")
        if (one.match_type == _EXACT) != (one.match is not None):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A filter component needs a name to match if its match type is 0 (exact), and must "
                f"not have one otherwise; the component of type {kind} has match type "
                f"{one.match_type}",
            )
        if one.match_type == _SPECIFIED:
            types.add(kind)
        else:
            names[kind] = one.match
    wanted = names.keys() | types
    if IP in wanted and len(wanted) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A filter component of type ip cannot be combined with user or client-id.",
        )
    return names, types


def _matches(
    entity: dict[str, str | None], names: dict[str, str | None], types: set[str], strict: bool
) -> bool:
    if strict and len(entity) != len(names) + len(types):
        return False
    return types <= entity.keys() and names.items() <= entity.items()


# --- AlterClientQuotas ----------------------------------------------------------------------------


def alter_client_quotas(
    services: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Set and remove quotas; an error of one entity does not affect the others."""

    def decide(state: SecurityState) -> tuple[list[_Results], SecurityState]:
        results, changed = _alter(state, request.entries)
        return [results], state if request.validate_only else changed

    (results,) = services.metadata.alter_security(decide)
    for entry in () if request.validate_only else request.entries:
        parts = {one.entity_type: one.entity_name for one in entry.entity}
        if results[tuple(sorted(parts.items()))] is None:
            quotas = {one.key: None if one.remove else one.value for one in entry.ops}
            fields = {"entity": parts, "quotas": quotas}
            services.audit.changed(context.caller, "quotas_changed", fields)
    entries = [
        altered.EntryData(
            error_code=NO_ERROR if refused is None else error(refused.code),
            error_message=None if refused is None else refused.message,
            entity=tuple(
                altered.EntityData(entity_type=kind, entity_name=name) for kind, name in parts
            ),
        )
        for parts, refused in results.items()
    ]
    return respond(partial(AlterClientQuotasResponse, entries=tuple(entries)))


def _alter(
    state: SecurityState, entries: Iterable[altering.EntryData]
) -> tuple[_Results, SecurityState]:
    results: _Results = {}
    for entry in entries:
        parts = {one.entity_type: one.entity_name for one in entry.entity}
        named = tuple(sorted(parts.items()))
        try:
            if named in results:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The request has this entity more than once"
                )
            state = _alter_entity(state, check_entity(parts), entry.ops)
            results[named] = None
        except KafkaError as refused:
            results[named] = refused
    return results, state


def _alter_entity(
    state: SecurityState, entity: QuotaEntity, ops: Iterable[altering.OpData]
) -> SecurityState:
    quotas = dict(state.quotas.get(entity, {}))
    seen: set[str] = set()
    for op in ops:
        if op.key in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {op.key}")
        seen.add(op.key)
        if op.remove:
            quotas.pop(op.key, None)
        else:
            check_value(entity, op.key, op.value)
            quotas[op.key] = op.value
    return state.with_quotas(entity, quotas)
