"""Handlers of `/connector-plugins`: installed classes, their options, and validation."""

from headrace.connect import transforms
from headrace.connect.config_keys import ConfigKey, key_of
from headrace.connect.errors import bad_request, not_found
from headrace.connect.plugins import SUFFIX, UnknownPlugin
from headrace.connect.rest.call import ConnectCall, config_of
from headrace.connect.validation import (
    keys_of,
    options_of_converter,
    step_classes,
)


async def list_plugins(call: ConnectCall) -> object:
    """The connectors, and with `connectorsOnly=false` all other classes."""
    found = [
        {"class": plugin.name, "type": plugin.type, "version": plugin.version}
        for plugin in call.worker.plugins.all()
    ]
    if call.text("connectorsOnly", "true").lower() != "false":
        return found
    version = call.worker.version
    return found + [
        {"class": name, "type": kind, "version": version} for name, kind in step_classes().items()
    ]


async def get_options(call: ConnectCall) -> object:
    """The options of a class."""
    name = call.path["plugin"]
    try:
        plugin = call.worker.plugins.find(name)
        keys: list[ConfigKey] = keys_of(plugin, call.worker.options.defaults)
    except UnknownPlugin:
        options = transforms.options_of(name)
        options = options_of_converter(name) if options is None else options
        if options is None:
            raise not_found(f"Unknown plugin {name}.") from None
        keys = [key_of(option) for option in options]
    return [key.definition() for key in keys]


async def validate(call: ConnectCall) -> object:
    """`ConfigInfos`; status 200 even if there are errors."""
    wanted = call.path["plugin"]
    config = config_of(call.json(), "The body")
    included = config.get("connector.class")
    if included is not None and not _without_suffix(included).endswith(_without_suffix(wanted)):
        raise bad_request(
            f"Included connector type {included} does not match request type {wanted}"
        )
    return (await call.worker.validate(config)).as_json()


def _without_suffix(name: str) -> str:
    return name.removesuffix(SUFFIX) or name
