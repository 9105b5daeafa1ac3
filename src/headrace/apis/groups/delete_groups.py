"""DeleteGroups (42), versions 0-2.

Deletes groups without members, and all their offsets. A group with members gets NON_EMPTY_GROUP
(68), an unknown one GROUP_ID_NOT_FOUND (69). The state of a share group is deleted before the
group. v2 flexible.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import error, respond


def delete_groups(
    services: Services, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Coroutine[None, None, DeleteGroupsResponse]:
    """Delete the groups; an error of one does not affect the others."""
    names = tuple(dict.fromkeys(request.groups_names))

    def answer_all(results: list[Result[ErrorCode]]) -> DeleteGroupsResponse:
        return respond(
            partial(
                DeleteGroupsResponse,
                results=tuple(
                    DeletableGroupResult(group_id=name, error_code=error(_code(result)))
                    for name, result in zip(names, results, strict=True)
                ),
            )
        )

    def delete_all() -> DeleteGroupsResponse | Coroutine[None, None, DeleteGroupsResponse]:
        return services.groups.run_each(
            [(name, partial(_delete, context.caller, name)) for name in names], answer_all
        )

    shares = [name for name in names if services.groups.holds_share_group(name)]
    if shares:
        return _delete_with_state(services, shares, context.caller, delete_all)
    return delete_all()


async def _delete_with_state(
    services: Services,
    shares: Sequence[str],
    caller: Caller,
    delete_all: Callable[[], DeleteGroupsResponse | Coroutine[None, None, DeleteGroupsResponse]],
) -> DeleteGroupsResponse:
    """Delete the state of share groups first: without the group it would never be deleted."""
    from headrace.apis.shares.share_group_offsets import delete_state_of_empty

    for name in shares:
        if caller.may(AclOperation.DELETE, ResourceType.GROUP, name):
            await delete_state_of_empty(services, name)
    done = delete_all()
    return await done if isinstance(done, Coroutine) else done


def _delete(
    caller: Caller, name: str, groups: Groups, token: Token[ErrorCode], _now_ms: int
) -> Outcome:
    if not caller.may(AclOperation.DELETE, ResourceType.GROUP, name):
        return answer(token, denied(ResourceType.GROUP))
    return groups.delete(name, token)


def _code(result: Result[ErrorCode]) -> ErrorCode:
    return result.code if isinstance(result, KafkaError) else result
