"""Properties of Kafka's consumer that have no effect here, and those that are refused."""

REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the checkpoint has the offsets; group.id shows them as a group",
    "interceptor.classes": "there is no Java consumer here",
    "key.deserializer": "keys are bytes; convert them with DataFrame operations",
    "value.deserializer": "values are bytes; convert them with DataFrame operations",
}

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "client.rack",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.protocol",
        "group.remote.assignor",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of the Java consumer without an effect here."""
