"""Settings that are accepted and have no effect in this version.

Remove a name from this list when its setting begins to have an effect. A test compares the list
with the names that occur in the source.
"""

from headrace.settings.setting import Setting

TOPIC_NO_EFFECT = frozenset(
    {
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)

BROKER_NO_EFFECT = frozenset(
    {
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "background.threads",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.coordinator.append.linger.ms",
        "group.coordinator.rebalance.protocols",
        "group.coordinator.threads",
        "group.share.assignors",
        "group.share.enable",
        "log.cleaner.io.buffer.size",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "queued.max.requests",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.reader.threads",
        "replica.socket.receive.buffer.bytes",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds",
        "request.timeout.ms",
        "share.coordinator.append.linger.ms",
        "share.coordinator.load.buffer.size",
        "share.coordinator.threads",
        "share.coordinator.write.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.listen.backlog.size",
        "transaction.state.log.load.buffer.size",
        "transaction.two.phase.commit.enable",
        "unclean.leader.election.interval.ms",
        "zookeeper.ssl.crl.enable",
        "zookeeper.ssl.ocsp.enable",
    }
)


def marked(row: Setting) -> Setting:
    """The row, marked as inert if it is listed here."""
    names = TOPIC_NO_EFFECT if row.scope == "topic" else BROKER_NO_EFFECT
    return row._replace(inert=True) if row.name in names else row
