"""Endpoints for settings and modes: global, of a context, of a subject."""

from headrace.registry import decisions, failures
from headrace.registry.call import Call


async def get_config(call: Call) -> object:
    scope, state = call.scope, call.registry.state
    if scope is None or call.flag("defaultToGlobal"):
        return state.config(scope)
    found = state.configs.get(scope)
    if found is None:
        raise failures.no_subject_config(scope)
    return dict(found)


async def put_config(call: Call) -> object:
    scope, body = call.scope, call.json()
    return await call.registry.write(lambda state: decisions.set_config(state, scope, body))


async def delete_config(call: Call) -> object:
    scope = call.scope
    return await call.registry.write(lambda state: decisions.delete_config(state, scope))


async def get_mode(call: Call) -> object:
    scope, state = call.scope, call.registry.state
    if scope is None or call.flag("defaultToGlobal"):
        return {"mode": state.mode(scope)}
    if scope not in state.modes:
        raise failures.no_subject_mode(scope)
    return {"mode": state.modes[scope]}


async def put_mode(call: Call) -> object:
    scope, body, force = call.scope, call.json(), call.flag("force")
    return await call.registry.write(
        lambda state: decisions.set_mode(state, scope, body, force=force)
    )


async def delete_mode(call: Call) -> object:
    scope, recursive = call.scope, call.flag("recursive")
    return await call.registry.write(
        lambda state: decisions.delete_mode(state, scope, recursive=recursive)
    )
