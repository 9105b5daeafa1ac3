"""Names in files written for Kafka that have no effect: they are accepted and logged."""

from headrace.settings.no_effect import BROKER_NO_EFFECT

_KRAFT = "Headrace keeps its metadata in its own store and has no KRaft quorum"
_TIERED = "Headrace has no tiered storage"
_JVM = "it configures Java classes, and Headrace loads none"
_REMOVED = "Kafka removed it, and Headrace stores the current message format only"
_INSIDE = "it tunes internals of Kafka's broker"
_ASSIGNED_AT_ONCE = "assignments are computed as soon as members or topics change"
_METRICS = "Headrace's metrics are not reported through Java classes"

_EXACT = {
    "process.roles": _KRAFT,
    "initial.broker.registration.timeout.ms": _KRAFT,
    "controller.socket.timeout.ms": _KRAFT,
    "server.max.startup.time.ms": _KRAFT,
    "early.start.listeners": _KRAFT,
    "unstable.api.versions.enable": _INSIDE,
    "unstable.feature.versions.enable": _INSIDE,
    "fetch.purgatory.purge.interval.requests": _INSIDE,
    "producer.purgatory.purge.interval.requests": _INSIDE,
    "delete.records.purgatory.purge.interval.requests": _INSIDE,
    "share.fetch.purgatory.purge.interval.requests": _INSIDE,
    "max.request.partition.size.limit": _INSIDE,
    "log.initial.task.delay.ms": _INSIDE,
    "share.coordinator.cold.partition.snapshot.interval.ms": _INSIDE,
    "share.coordinator.state.topic.prune.interval.ms": _INSIDE,
    "group.coordinator.background.threads": _INSIDE,
    "group.coordinator.cached.buffer.max.bytes": _INSIDE,
    "share.coordinator.cached.buffer.max.bytes": _INSIDE,
    "group.consumer.assignment.interval.ms": _ASSIGNED_AT_ONCE,
    "group.consumer.max.assignment.interval.ms": _ASSIGNED_AT_ONCE,
    "group.consumer.min.assignment.interval.ms": _ASSIGNED_AT_ONCE,
    "group.share.assignment.interval.ms": _ASSIGNED_AT_ONCE,
    "group.share.max.assignment.interval.ms": _ASSIGNED_AT_ONCE,
    "group.share.min.assignment.interval.ms": _ASSIGNED_AT_ONCE,
    "cordoned.log.dirs": "new partitions may be placed in every data folder",
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "log.dir.failure.timeout.ms": _KRAFT,
    "group.share.persister.class.name": _JVM,
    "auto.include.jmx.reporter": _METRICS,
    "log.message.format.version": _REMOVED,
    "log.message.downconversion.enable": _REMOVED,
    "inter.broker.protocol.version": _REMOVED,
    "log.message.timestamp.difference.max.ms": (
        "Kafka replaced it by log.message.timestamp.before.max.ms and "
        "log.message.timestamp.after.max.ms"
    ),
    "control.plane.listener.name": "Kafka removed it, and Headrace has no control plane listener",
    "leader.imbalance.per.broker.percentage": "Kafka removed it",
    "zookeeper.metadata.migration.enable": _KRAFT,
}

_PREFIXES = {
    "controller.quorum.": _KRAFT,
    "controller.performance.": _KRAFT,
    "metadata.": _KRAFT,
    "internal.metadata.": _KRAFT,
    "remote.log.": _TIERED,
    "remote.fetch.": _TIERED,
    "remote.list.": _TIERED,
    "rsm.config.": _TIERED,
    "rlmm.config.": _TIERED,
    "kafka.metrics.": _METRICS,
    "metrics.": _METRICS,
    "alter.log.dirs.replication.quota.": "moves between folders are not limited by samples",
}


def why_ignored(name: str) -> str:
    """Why `name` has no effect here; empty if it is not one of these, or has a row in the table."""
    if name in BROKER_NO_EFFECT:
        return ""
    why = _EXACT.get(name)
    if why is None:
        why = next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), "")
    return why


def ignored_names() -> list[tuple[str, str]]:
    """All such names and, with a star, families of names, each with its reason; for the docs."""
    families = ((f"{prefix}*", why) for prefix, why in _PREFIXES.items())
    return sorted([*_EXACT.items(), *families])
