"""DescribeConfigs (32) versions 1-4, AlterConfigs (33) 0-2, IncrementalAlterConfigs (44) 0-1.

Configs of topics, groups, this broker (by its id), all brokers (""), this broker's loggers, and
subscriptions to client metrics, which exist as long as they have a config.
AlterConfigs replaces all configs of a resource; IncrementalAlterConfigs sets, deletes, appends to
and subtracts from single ones. Only configs that can change while a broker runs can be altered. An
error of one resource does not affect the others.

DescribeConfigs: v1 synonyms; v3 types and documentation; v4 flexible. AlterConfigs: v2 flexible.
IncrementalAlterConfigs: v1 flexible. Not done: policies for changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kio.schema.alter_configs.v2 import request as replacing
from kio.schema.alter_configs.v2 import response as replaced
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.incremental_alter_configs.v1 import request as altering
from kio.schema.incremental_alter_configs.v1 import response as altered

from headrace.apis.configs import broker_loggers
from headrace.apis.configs.config_entries import (
    BrokerConfigs,
    ConfigEntry,
    ConfigSource,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    topic_entries,
)
from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import need_cluster, need_group, need_topic
from headrace.cluster import controller
from headrace.cluster.controller import (
    Alteration,
    AlteredConfigs,
    ConfigChange,
    Operation,
    check_topic_name,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.settings import Type
from headrace.settings.listeners import LISTENER_PREFIX
from headrace.settings.resolve import listener_of
from headrace.types import ConfigResourceType
from headrace.wire.primitives import NO_ERROR, error, i8, respond

_Shown = tuple[DescribeConfigsResourceResult, ...]


# --- DescribeConfigs ------------------------------------------------------------------------------


def describe_configs(
    services: Services, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe the resources; an error of one does not affect the others."""
    describe = _Describer(services, request)
    results = []
    for resource in request.resources:
        try:
            _need(context.caller, AclOperation.DESCRIBE_CONFIGS, resource)
            configs, code, message = describe(resource), NO_ERROR, None
        except KafkaError as refusal:
            configs, code, message = (), error(refusal.code), refusal.message
        results.append(
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return respond(partial(DescribeConfigsResponse, results=tuple(results)))


class _Describer:
    """Describes resources; topics with the same configs are described once."""

    def __init__(self, services: Services, request: DescribeConfigsRequest) -> None:
        self._services = services
        self._request = request
        self._broker = BrokerConfigs.of(services)
        self._topics: dict[tuple[object, ...], _Shown] = {}

    def __call__(self, resource: DescribeConfigsResource) -> _Shown:
        name = resource.resource_name
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                return self._topic(resource)
            case ConfigResourceType.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                configs = self._services.metadata.image.group_configs.get(name, {})
                return self._show(group_entries(self._services.settings, configs), resource)
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        "Client metrics subscription name must not be empty",
                    )
                configs = self._services.metadata.image.client_metrics.get(name, {})
                return self._show(client_metrics_entries(configs), resource)
            case ConfigResourceType.BROKER if not name:
                return self._show(cluster_entries(self._broker), resource)
            case ConfigResourceType.BROKER:
                _check_node(name, self._services.node_id)
                return self._show(broker_entries(self._broker), resource)
            case ConfigResourceType.BROKER_LOGGER:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                _check_node(name, self._services.node_id)
                return self._show(_logger_entries(), resource)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
        )

    def _topic(self, resource: DescribeConfigsResource) -> _Shown:
        check_topic_name(resource.resource_name)
        topic = self._services.metadata.image.topics.get(resource.resource_name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"unknown topic '{resource.resource_name}'",
            )
        key = (tuple(topic.configs.items()), resource.configuration_keys)
        if key not in self._topics:
            entries = topic_entries(self._broker, topic.configs)
            self._topics[key] = self._show(entries, resource)
        return self._topics[key]

    def _show(self, entries: Iterable[ConfigEntry], resource: DescribeConfigsResource) -> _Shown:
        wanted = resource.configuration_keys
        return tuple(self._entry(entry) for entry in entries if not wanted or entry.name in wanted)

    def _entry(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        synonyms = entry.synonyms if self._request.include_synonyms else ()
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=i8(entry.source),
            is_sensitive=entry.sensitive,
            synonyms=tuple(
                DescribeConfigsSynonym(name=one.name, value=one.value, source=i8(one.source))
                for one in synonyms
            ),
            config_type=i8(entry.type),
            documentation=entry.doc if self._request.include_documentation else None,
        )


def _logger_entries() -> Iterable[ConfigEntry]:
    for name, level in broker_loggers.levels().items():
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        yield ConfigEntry(name, level, source, False, False, Type.STRING, "", ())


# --- AlterConfigs and IncrementalAlterConfigs -----------------------------------------------------


class _Resource(Protocol):
    """What the resources of both requests have in common."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


def alter_configs(
    services: Services, request: replacing.AlterConfigsRequest, context: RequestContext
) -> replaced.AlterConfigsResponse:
    """Replace all configs of each resource."""

    def changes(place: int) -> list[tuple[str, int, str | None]]:
        return [
            (config.name, Operation.SET, config.value)
            for config in request.resources[place].configs
        ]

    results = _alter(
        services, context.caller, request.resources, changes, request.validate_only, fresh=True
    )
    responses = tuple(
        replaced.AlterConfigsResourceResponse(
            error_code=error(result.code) if result else NO_ERROR,
            error_message=result.message if result else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, result in zip(request.resources, results, strict=True)
    )
    return respond(partial(replaced.AlterConfigsResponse, responses=responses))


def incremental_alter_configs(
    services: Services, request: altering.IncrementalAlterConfigsRequest, context: RequestContext
) -> altered.IncrementalAlterConfigsResponse:
    """Change single configs of each resource."""

    def changes(place: int) -> list[tuple[str, int, str | None]]:
        return [
            (config.name, config.config_operation, config.value)
            for config in request.resources[place].configs
        ]

    results = _alter(
        services, context.caller, request.resources, changes, request.validate_only, fresh=False
    )
    responses = tuple(
        altered.AlterConfigsResourceResponse(
            error_code=error(result.code) if result else NO_ERROR,
            error_message=result.message if result else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, result in zip(request.resources, results, strict=True)
    )
    return respond(partial(altered.IncrementalAlterConfigsResponse, responses=responses))


def _need(caller: Caller, operation: AclOperation, resource: _Resource) -> None:
    """KafkaError unless the client may perform the operation on the configs of the resource."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        need_topic(caller, operation, resource.resource_name)
    elif resource.resource_type == ConfigResourceType.GROUP:
        need_group(caller, operation, resource.resource_name)
    else:
        need_cluster(caller, operation)


def _alter(
    services: Services,
    caller: Caller,
    resources: Sequence[_Resource],
    changes_at: Callable[[int], list[tuple[str, int, str | None]]],
    validate_only: bool,
    *,
    fresh: bool,
) -> list[KafkaError | None]:
    """Alter the resources; for each of them None, or the error."""
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    results: list[KafkaError | None] = [None] * len(resources)
    wanted: dict[int, Alteration] = {}
    for place, resource in enumerate(resources):
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            _need(caller, AclOperation.ALTER_CONFIGS, resource)
            changes = _checked(changes_at(place))
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER and not fresh:
                _check_node(resource.resource_name, services.node_id)
                broker_loggers.alter(changes, validate_only=validate_only)
            else:
                wanted[place] = _alteration(services, resource, changes, fresh)
        except KafkaError as refusal:
            results[place] = refusal
    outcomes = services.metadata.alter_configs(list(wanted.values()), validate_only=validate_only)
    if not validate_only and any(one.of == "broker" and one.name for one in wanted.values()):
        _use_certificates(services)
    results_by_place: Mapping[int, KafkaError | None] = dict(zip(wanted, outcomes, strict=True))
    return [results_by_place.get(place, refused) for place, refused in enumerate(results)]


def _alteration(
    services: Services, resource: _Resource, changes: tuple[ConfigChange, ...], fresh: bool
) -> Alteration:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        return Alteration("topic", name, changes, fresh)
    if resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        return Alteration("group", name, changes, fresh, services.settings)
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        return Alteration("client-metrics", name, changes, fresh)
    if resource.resource_type == ConfigResourceType.BROKER:
        if name:
            _check_node(name, services.node_id)
            name = str(services.node_id)
        alteration = Alteration("broker", name, changes, fresh)
        if name:
            _check_certificates(services, alteration)
        return alteration
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_certificates(services: Services, alteration: Alteration) -> None:
    """KafkaError if the alteration names certificates that this broker cannot use.

    Only this broker alters its own configs, so they are the same when they are stored.
    """
    altered = controller.alter_configs(services.metadata.image, alteration)
    assert isinstance(altered, AlteredConfigs), "a broker is not a topic"
    named = {
        listener_of(change.name): change
        for change in alteration.changes
        if change.name.startswith(LISTENER_PREFIX)
    }
    known = {one.name.lower() for one in services.settings.listeners.all}
    for listener, change in named.items():
        if listener not in known and change.operation is not Operation.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{change.name}: this broker has no listener {listener.upper()}; it has "
                + ", ".join(one.name for one in services.settings.listeners.all),
            )
    if services.certificates is not None:
        services.certificates.check(altered.configs, named)


def _use_certificates(services: Services) -> None:
    """Use the certificates that the configs of this broker name now."""
    if services.certificates is not None:
        configs = services.metadata.image.broker_configs.get(str(services.node_id), {})
        services.certificates.use(configs)


def _checked(rows: list[tuple[str, int, str | None]]) -> tuple[ConfigChange, ...]:
    if len({name for name, _, _ in rows}) != len(rows):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, kind, value in rows if kind != Operation.DELETE and value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    for _, kind, _ in rows:
        if kind not in Operation._value2member_map_:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {kind}")
    return tuple(ConfigChange(name, Operation(kind), value) for name, kind, value in rows)


def _check_node(name: str, node_id: int) -> None:
    if not name.lstrip("-").isdecimal():
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )
    if int(name) != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {node_id}; send the request to broker {name}",
        )
