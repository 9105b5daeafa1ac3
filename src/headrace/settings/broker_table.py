"""The settings of a broker, except security: Kafka 4.3's names, types, defaults and checks.

Broker settings that give the default of a topic config derive from `topic_table.py`.
Where Headrace's default differs, the row gives Kafka's as `kafka_default`.
"""

from headrace.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Check,
    Setting,
    Synonym,
    Type,
    Value,
    at_least,
    at_least_or,
    between,
    each_matching,
    matching,
    one_of,
    one_of_any_case,
    some_of,
)
from headrace.settings.topic_table import (
    DAY_MS,
    HOUR_MS,
    MIB,
    PRODUCER_ID_EXPIRATION,
    TOPIC_DEFAULTS,
)

BOOLEAN, STRING, INT, SHORT = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT
LONG, DOUBLE, LIST = Type.LONG, Type.DOUBLE, Type.LIST
CONSUMER_ASSIGNORS = each_matching(
    r"uniform|range|org\.apache\.kafka\.coordinator\.group\.assignor\.(Uniform|Range)Assignor",
    "uniform, range or both, or Kafka's own class names for them",
)
INTERNAL_TOPIC_CODEC = between(0, 4)
CONNECTION_COUNTS = matching(
    r"(\s*[0-9A-Fa-f.:\[\]]+:[0-9]+\s*(,|$))*", "IP addresses with numbers, such as 10.0.0.7:20"
)


def _row(
    name: str,
    kind: Type,
    default: Value,
    check: Check | None,
    doc: str,
    *,
    live: bool = False,
    synonym: str = "",
    kafka_default: str | None = None,
) -> Setting:
    synonyms = (Synonym(synonym),) if synonym else ()
    return Setting(name, kind, default, doc, check, "broker", live, synonyms, kafka_default)


def _live(name: str, kind: Type, default: Value, check: Check | None, doc: str) -> Setting:
    return Setting(name, kind, default, doc, check, "broker", live=True)


# fmt: off
IDENTITY = (
    _row("node.id", INT, None, at_least(0), "The id of this broker, unique in the cluster.",
         synonym="broker.id"),
    _row("broker.id", INT, 1, at_least(0), "The older name of node.id.", kafka_default="-1"),
    _row("broker.rack", STRING, None, None,
         "The rack of this broker; replicas of a partition are spread over racks."),
    _row("listeners", STRING, "PLAINTEXT://:9092", None,
         "Addresses to listen on: NAME://host:port, separated by commas; no host means all "
         "interfaces."),
    _row("advertised.listeners", STRING, None, None,
         "Addresses that the broker returns to clients; by default those of listeners.",
         synonym="listeners"),
    _row("listener.security.protocol.map", STRING,
         "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", None,
         "The security protocol of each listener: NAME:PROTOCOL, separated by commas."),
    _row("inter.broker.listener.name", STRING, None, None,
         "The listener that brokers use among themselves; by default PLAINTEXT, else the first."),
    _row("controller.listener.names", STRING, None, None,
         "Listener names that belong to a KRaft controller; Headrace does not open them."),
    _row("security.inter.broker.protocol", STRING, "PLAINTEXT",
         one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
         "Names the listener for brokers by its protocol, instead of inter.broker.listener.name."),
)

STORE = (
    _row("zookeeper.connect", STRING, None, None,
         "ZooKeeper's host:port list and optional /path for a cluster's metadata; without it "
         "metadata stays in a file of the first data folder."),
    _row("zookeeper.session.timeout.ms", INT, 2000, at_least(1),
         "Time without heartbeats after which ZooKeeper ends this broker's session; at least "
         "twice ZooKeeper's tickTime.", kafka_default="18000"),
    _row("zookeeper.connection.timeout.ms", INT, 18_000, at_least(1),
         "A starting broker waits for ZooKeeper without a limit; if no host name of the "
         "address can be resolved for this time, the start fails."),
    _row("broker.heartbeat.interval.ms", INT, 2000, at_least(1),
         "Interval of a broker's heartbeats to the controller."),
    _row("broker.session.timeout.ms", INT, 9000, at_least(1),
         "Time without heartbeats after which the controller considers a broker dead."),
)

LOGS = (
    _row("log.dirs", STRING, None, None,
         "Data folders, separated by commas; by default log.dir.", synonym="log.dir"),
    _row("log.dir", STRING, "headrace-data", None,
         "The data folder if log.dirs is not set.",
         kafka_default="/tmp/kafka-logs"),
    _row("log.retention.check.interval.ms", LONG, 300_000, at_least(1),
         "Interval of checks for segments to delete."),
    _row("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
         "Interval of checkpoints of the recovery points."),
    _row("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
         "Interval of checkpoints of the log start offsets."),
    _row("num.recovery.threads.per.data.dir", INT, 8, at_least(1),
         "Threads that recover logs after an unclean stop and close them at a stop, for each data "
         "folder; they mostly wait for the disk.", live=True, kafka_default="2"),
)

COMPACTION = (
    _row("log.cleaner.enable", BOOLEAN, True, None, "Compact topics with cleanup.policy=compact."),
    _live("log.cleaner.threads", INT, 1, at_least(0), "Processes that compact."),
    _live("log.cleaner.backoff.ms", LONG, 15_000, at_least(0),
          "Pause between checks for logs to compact."),
    _live("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB, at_least(1),
          "Memory for the keys of a compaction, over all processes; keys that do not fit are "
          "left to the next compaction."),
    _live("log.cleaner.io.buffer.size", INT, 512 * 1024, at_least(0),
          "Memory for reading and writing while compacting. Headrace reads 8 MiB at a time."),
    _live("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, between(0, 1),
          "The share of the key memory that may be used."),
    _live("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, at_least(0),
          "Bytes per second that compaction reads and writes at most."),
)

TOPICS = (
    _row("num.partitions", INT, 1, at_least(1),
         "Partitions of a topic that is created without a number."),
    _row("default.replication.factor", INT, 1, at_least(1),
         "Replicas of a topic that is created without a number."),
    _row("auto.create.topics.enable", BOOLEAN, True, None,
         "Create a topic when a client first requests its metadata."),
    _row("delete.topic.enable", BOOLEAN, True, None, "Allow topics to be deleted."),
)

NETWORK = (
    _row("socket.send.buffer.bytes", INT, 102_400, at_least_or(1, -1),
         "SO_SNDBUF of client sockets; -1 lets the kernel tune it, which slows large fetches on "
         "the same machine and helps distant consumers."),
    _row("socket.receive.buffer.bytes", INT, -1, at_least_or(1, -1),
         "SO_RCVBUF of client sockets; -1 lets the kernel tune it.", kafka_default="102400"),
    _row("socket.request.max.bytes", INT, 100 * MIB, at_least(1),
         "The largest request accepted; a larger one closes the connection."),
    _row("socket.listen.backlog.size", INT, 512, at_least(1),
         "Connections that may wait to be accepted.", kafka_default="50"),
    _row("socket.connection.setup.timeout.ms", LONG, 10_000, at_least(1),
         "Timeout of a connection to another broker, at first. Also the time that a client has for "
         "its TLS handshake, and then for its login."),
    _row("socket.connection.setup.timeout.max.ms", LONG, 30_000, at_least(1),
         "Timeout of a connection to another broker after repeated failures."),
    _row("connections.max.idle.ms", LONG, 600_000, None,
         "Time without requests after which a connection is closed; negative: never."),
    _live("max.connections", INT, INT_MAX, at_least(0), "Connections at the same time."),
    _live("max.connections.per.ip", INT, INT_MAX, at_least(0),
          "Connections at the same time from one address."),
    _live("max.connections.per.ip.overrides", STRING, "", CONNECTION_COUNTS,
          "Other limits for some addresses: address:count, separated by commas."),
    _live("max.connection.creation.rate", INT, INT_MAX, at_least(0),
          "Connections accepted per second."),
    _row("queued.max.requests", INT, 500, at_least(1),
         "Requests that may be queued before the broker stops reading."),
    _row("queued.max.request.bytes", LONG, 512 * MIB, None,
         "Memory of the unfinished requests of all clients, above which the broker stops "
         "reading those larger than 64 KB; -1: no limit.", kafka_default="-1"),
    _row("request.timeout.ms", INT, 30_000, at_least(1),
         "How long a broker waits for the response of another broker."),
    _row("num.network.threads", INT, 3, at_least(1), "Kafka's network threads.", live=True),
    _row("num.io.threads", INT, 8, at_least(1), "Kafka's request threads.", live=True),
    _row("background.threads", INT, 10, at_least(1), "Kafka's background threads.", live=True),
    _row("telemetry.max.bytes", INT, MIB, at_least(1),
         "The largest push of client metrics, as the client sends it."),
)

FETCHES = (
    _row("fetch.max.bytes", INT, 55 * MIB, at_least(1024),
         "Bytes that one fetch returns at most, whatever it asks for."),
    _row("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
         "The number of fetch sessions in the cache."),
    _row("replica.lag.time.max.ms", LONG, 30_000, at_least(1),
         "Time after which a follower that has not caught up is out of sync."),
    _row("replica.fetch.max.bytes", INT, MIB, at_least(0),
         "Bytes that a follower asks for per partition."),
    _row("replica.fetch.response.max.bytes", INT, 10 * MIB, at_least(0),
         "Bytes that a follower asks for in all."),
    _row("replica.fetch.min.bytes", INT, 1, at_least(0),
         "Bytes that a follower's fetch waits for."),
    _row("replica.fetch.wait.max.ms", INT, 500, at_least(0),
         "How long a follower's fetch waits for them."),
    _row("replica.fetch.backoff.ms", INT, 1000, at_least(0),
         "Longest time between a follower's attempts to reach a leader that does not answer."),
    _row("replica.socket.timeout.ms", INT, 30_000, at_least(1),
         "How long a follower waits for the response of a leader."),
    _row("replica.socket.receive.buffer.bytes", INT, -1, at_least_or(1, -1),
         "SO_RCVBUF of a follower's sockets; -1 lets the kernel tune it.",
         kafka_default="65536"),
    _row("replica.selector.class", STRING, "",
         one_of("", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
         "With RackAwareReplicaSelector, consumers that give their client.rack read from a replica "
         "in that rack (broker.rack) if one is in sync; otherwise from leaders only."),
    _row("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, at_least(1),
         "Interval of checkpoints of the high watermarks."),
    _live("num.replica.fetchers", INT, 1, at_least(1),
          "Connections that a follower keeps to each leader."),
    _row("num.replica.alter.log.dirs.threads", INT, None, at_least(1),
         "How many replicas move between data folders at a time; by default one for each folder."),
    _live("replica.alter.log.dirs.io.max.bytes.per.second", LONG, 2**63 - 1, at_least(1),
          "Bytes per second that one of these moves reads at most."),
    _row("auto.leader.rebalance.enable", BOOLEAN, True, None,
         "Elect the preferred (first) replica of a partition when it is in sync again."),
    _row("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
         "Interval of elections of preferred leaders."),
    _row("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1),
           "Interval of checks for partitions that need an unclean election."),
    _row("controlled.shutdown.enable", BOOLEAN, True, None,
         "Move leadership to other brokers before stopping."),
)

GROUPS = (
    _row("group.min.session.timeout.ms", INT, 6000, at_least(1),
         "The shortest session timeout of a classic member."),
    _row("group.max.session.timeout.ms", INT, 1_800_000, at_least(1),
         "The longest session timeout of a classic member."),
    _row("group.initial.rebalance.delay.ms", INT, 3000, at_least(0),
         "How long an empty classic group waits for more members before its first rebalance."),
    _row("group.max.size", INT, INT_MAX, at_least(1),
         "The maximum number of members of a classic group."),
    _row("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"),
         some_of("classic", "consumer", "share", "streams"), "The enabled group protocols."),
    _row("group.coordinator.append.linger.ms", INT, -1, at_least(-1),
         "How long the coordinator collects records before it writes them; -1 as long as others "
         "arrive."),
    _row("group.coordinator.threads", INT, 4, at_least(1), "Kafka's coordinator threads."),
    _row("group.consumer.session.timeout.ms", INT, 45_000, at_least(1),
         "Session timeout of a member of a consumer group."),
    _row("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1),
         "The smallest value that a group may configure for it."),
    _row("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1),
         "The largest value that a group may configure for it."),
    _row("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1),
         "Heartbeat interval of a member of a consumer group."),
    _row("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1),
         "The smallest value that a group may configure for it."),
    _row("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
         "The largest value that a group may configure for it."),
    _row("group.consumer.max.size", INT, INT_MAX, at_least(1),
         "The maximum number of members of a consumer group."),
    _row("group.consumer.assignors", LIST, ("uniform", "range"), CONSUMER_ASSIGNORS,
         "Server-side assignors; the first is the default."),
    _row("group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000),
         "Interval at which regular expressions of subscriptions are matched with topics."),
    _row("group.consumer.migration.policy", STRING, "bidirectional",
         one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
         "Which conversions between the classic and the consumer protocol are allowed."),
)
SHARE_GROUPS = (
    _row("group.share.enable", BOOLEAN, False, None, "Serve share groups."),
    _row("group.share.assignors", LIST, ("simple",), None, "Server-side assignors."),
    _row("group.share.delivery.count.limit", INT, 5, between(2, 10),
         "How often a record is delivered at most."),
    _row("group.share.max.size", INT, 200, between(1, 1000),
         "The maximum number of members of a share group."),
    _row("group.share.max.share.sessions", INT, 2000, at_least(1),
         "The number of share sessions in the cache."),
    _row("group.share.session.timeout.ms", INT, 45_000, at_least(1),
         "Session timeout of a member of a share group."),
    _row("group.share.min.session.timeout.ms", INT, 45_000, at_least(1),
         "The smallest value that a group may configure for it."),
    _row("group.share.max.session.timeout.ms", INT, 60_000, at_least(1),
         "The largest value that a group may configure for it."),
    _row("group.share.heartbeat.interval.ms", INT, 5000, at_least(1),
         "Heartbeat interval of a member of a share group."),
    _row("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1),
         "The smallest value that a group may configure for it."),
    _row("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
         "The largest value that a group may configure for it."),
    _row("group.share.record.lock.duration.ms", INT, 30_000, between(1000, HOUR_MS),
         "How long a delivered record stays locked for its member."),
    _row("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000),
         "The smallest value that a group may configure for it."),
    _row("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, HOUR_MS),
         "The largest value that a group may configure for it."),
    _row("group.share.partition.max.record.locks", INT, 2000, between(100, 10_000),
         "Records of one partition that may be in flight."),
    _row("group.share.min.partition.max.record.locks", INT, 100, at_least(100),
         "The smallest value that a group may configure for it."),
    _row("group.share.max.partition.max.record.locks", INT, 4000, at_least(100),
         "The largest value that a group may configure for it."),
    _row("group.share.min.delivery.count.limit", INT, 2, between(2, 5),
         "The smallest value of group.share.delivery.count.limit that a group may configure."),
    _row("group.share.max.delivery.count.limit", INT, 10, between(5, 25),
         "The largest value of group.share.delivery.count.limit that a group may configure."),
    _row("errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", None,
         "How the names of topics for dead letters of share groups begin."),
    _row("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1),
         "Partitions of __share_group_state."),
    _row("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1),
         "Replicas of __share_group_state."),
    _row("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1),
         "Replicas of __share_group_state that must be in sync."),
    _row("share.coordinator.state.topic.segment.bytes", INT, 100 * MIB, at_least(1),
         "Segment size of __share_group_state."),
    _row("share.coordinator.state.topic.compression.codec", INT, 0, INTERNAL_TOPIC_CODEC,
         "Codec of __share_group_state, by number."),
    _row("share.coordinator.append.linger.ms", INT, -1, at_least(-1),
         "How long the share coordinator collects records before it writes them; -1 as long as "
         "others arrive."),
    _row("share.coordinator.load.buffer.size", INT, 5 * MIB, at_least(1),
         "Bytes read at a time while share state is loaded."),
    _row("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, at_least(0),
         "Updates between two snapshots of share state."),
    _row("share.coordinator.threads", INT, 1, at_least(1), "Kafka's share coordinator threads."),
    _row("share.coordinator.write.timeout.ms", INT, 5000, at_least(1),
         "How long a write of share state may take."),
    _row("group.streams.session.timeout.ms", INT, 45_000, at_least(1),
         "Session timeout of a member of a streams group."),
    _row("group.streams.min.session.timeout.ms", INT, 45_000, at_least(1),
         "The smallest value that a group may configure for it."),
    _row("group.streams.max.session.timeout.ms", INT, 60_000, at_least(1),
         "The largest value that a group may configure for it."),
    _row("group.streams.heartbeat.interval.ms", INT, 5000, at_least(1),
         "Heartbeat interval of a member of a streams group."),
    _row("group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1),
         "The smallest value that a group may configure for it."),
    _row("group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
         "The largest value that a group may configure for it."),
    _row("group.streams.max.size", INT, INT_MAX, at_least(1),
         "The maximum number of members of a streams group."),
    _row("group.streams.num.standby.replicas", INT, 0, at_least(0),
         "Standby replicas of each task of a streams group."),
    _row("group.streams.max.standby.replicas", INT, 2, at_least(0),
         "The largest number of standby replicas that a group may configure."),
    _row("group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0),
         "How long an empty streams group waits for more members before its first assignment."),
    _row("group.streams.assignment.interval.ms", INT, 1000, at_least(0),
         "The shortest time between two assignments of a streams group."),
    _row("group.streams.min.assignment.interval.ms", INT, 0, at_least(0),
         "The smallest value that a group may configure for it."),
    _row("group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0),
         "The largest value that a group may configure for it."),
)

OFFSETS = (
    _row("offsets.topic.num.partitions", INT, 50, at_least(1),
         "Partitions of __consumer_offsets."),
    _row("offsets.topic.replication.factor", SHORT, 3, at_least(1),
         "Replicas of __consumer_offsets."),
    _row("offsets.topic.segment.bytes", INT, 100 * MIB, at_least(1),
         "Segment size of __consumer_offsets."),
    _row("offsets.topic.compression.codec", INT, 0, INTERNAL_TOPIC_CODEC,
         "Codec of __consumer_offsets, by number."),
    _row("offsets.retention.minutes", INT, 10_080, at_least(1),
         "How long offsets of an empty group are kept."),
    _row("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1),
         "Interval of checks for expired offsets."),
    _row("offsets.commit.timeout.ms", INT, 5000, at_least(1), "How long a commit may take."),
    _row("offsets.load.buffer.size", INT, 5 * MIB, at_least(1),
         "Bytes read at a time while offsets are loaded."),
    _row("offset.metadata.max.bytes", INT, 4096, at_least(0),
         "The largest metadata that a client may store with a committed offset."),
)

TRANSACTIONS = (
    _row("transaction.state.log.num.partitions", INT, 50, at_least(1),
         "Partitions of __transaction_state."),
    _row("transaction.state.log.replication.factor", SHORT, 3, at_least(1),
         "Replicas of __transaction_state."),
    _row("transaction.state.log.min.isr", INT, 2, at_least(1),
         "Replicas of __transaction_state that must be in sync."),
    _row("transaction.state.log.segment.bytes", INT, 100 * MIB, at_least(1),
         "Segment size of __transaction_state."),
    _row("transaction.state.log.load.buffer.size", INT, 5 * MIB, at_least(1),
         "Bytes read at a time while transactions are loaded."),
    _row("transaction.max.timeout.ms", INT, 900_000, at_least(1),
         "The longest timeout of a transaction."),
    _row("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1),
         "Interval of checks for timed-out transactions, which are aborted."),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", INT, HOUR_MS, at_least(1),
         "Interval of checks for expired transactional ids."),
    _row("transactional.id.expiration.ms", INT, 7 * DAY_MS, at_least(1),
         "Time without a transaction after which a transactional id expires."),
    _live("transaction.partition.verification.enable", BOOLEAN, True, None,
          "Ask the coordinator whether a partition is in the transaction before writing to it."),
    _row("transaction.two.phase.commit.enable", BOOLEAN, False, None,
         "Let a transaction take part in an outside two-phase commit."),
    _row("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1),
         "First pause while the previous transaction of the producer is being completed."),
    _row("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0),
         "Longest such pause."),
    PRODUCER_ID_EXPIRATION,
    _row("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1),
         "Interval of checks for expired producer ids."),
)

QUOTAS = (
    _row("quota.window.num", INT, 11, at_least(1), "Samples over which quotas are measured."),
    _row("quota.window.size.seconds", INT, 1, at_least(1), "Length of a sample in seconds."),
    _row("replication.quota.window.num", INT, 11, at_least(1), "As above, for replication."),
    _row("replication.quota.window.size.seconds", INT, 1, at_least(1),
         "As above, for replication."),
    _live("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
          "Bytes per second that this broker copies of all replicas together that "
          "follower.replication.throttled.replicas of their topics names."),
    _live("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
          "Bytes per second that others copy from this broker of all replicas together that "
          "leader.replication.throttled.replicas of their topics names."),
    _row("controller.quota.window.num", INT, 11, at_least(1),
         "As above, for changes of topics."),
    _row("controller.quota.window.size.seconds", INT, 1, at_least(1),
         "As above, for changes of topics."),
)

WITHOUT_EFFECT = (
    # Kafka alters these while it runs; scripts that do so work here too.
    _live("remote.fetch.max.wait.ms", INT, 500, at_least(1),
          "How long a fetch waits for tiered storage."),
    _live("remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1),
          "How long a request for offsets waits for tiered storage."),
    _live("remote.log.index.file.cache.total.size.bytes", LONG, 1 << 30, at_least(1),
          "Disk space for indexes that come from tiered storage."),
    _live("remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1),
          "Threads that copy segments to tiered storage."),
    _live("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1),
          "Bytes per second that are copied to tiered storage."),
    _live("remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1),
          "Threads that delete segments from tiered storage."),
    _live("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, at_least(1),
          "Bytes per second that are read from tiered storage."),
    _live("remote.log.reader.threads", INT, 10, at_least(1),
          "Threads that read from tiered storage."),
    _live("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), None,
          "Java classes that report metrics; Headrace loads none."),
)

HEADRACE = (
    _live("headrace.max.decompressed.bytes", INT, 48 * MIB, at_least(1024),
          "The largest size of a batch when the broker must decompress it."),
    _row("headrace.metadata", STRING, "", None,
         "The store of the cluster's metadata: zookeeper://HOST:PORT,.../PATH for a cluster, "
         "sqlite:FOLDER for several brokers of one machine; a file in the first data folder if "
         "empty."),
    _row("headrace.metadata.login", Type.PASSWORD, None, matching(r"[^:]+:.+", "USER:PASSWORD"),
         "The ZooKeeper digest login as USER:PASSWORD: only it can then read or write the "
         "cluster's nodes. The same for all brokers, from the first start on."),
    _row("headrace.metrics.address", STRING, "",
         matching(r"((https?://)?[^/]+:[0-9]{1,5})?", "HOST:PORT, https://HOST:PORT, or nothing"),
         "Where /metrics and /health are served over HTTP, or with https:// over TLS with the "
         "certificate of ssl.keystore.location; nowhere if empty."),
    _row("headrace.metrics.users.file", STRING, "", None,
         "File with the users who may read them, with Basic authentication; all clients if empty. "
         "`headrace users add NAME --file FILE` writes it. Without a login /health returns only "
         "whether the broker is healthy."),
    _row("headrace.client.metrics.max.series", INT, 20_000, at_least(0),
         "Series of metrics that clients have pushed and /metrics shows; further ones are "
         "dropped."),
    _row("headrace.client.metrics.max.series.per.client", INT, 2_000, at_least(0),
         "The same for one client."),
    _row("headrace.metrics.kafka.names", BOOLEAN, False, None,
         "Whether /metrics also has Kafka's own metrics, by the names that the JMX exporter gives "
         "them with Strimzi's rules."),
    _row("headrace.metrics.partitions", BOOLEAN, False, None,
         "Whether /metrics has offsets, size and replicas of every partition: about ten lines for "
         "each replica of this broker."),
    _row("headrace.metrics.topics.max", INT, 1_000, at_least(0),
         "Topics whose records and bytes /metrics shows separately; those that are created when "
         "there are so many are shown together, as the topic with the empty name."),
    _row("headrace.open.files.max", INT, 10_000, at_least(10),
         "Files of segments that stay open at once, and never more than half of the descriptors "
         "that the system grants."),
    _row("headrace.connection.pipelined.requests", INT, 64, at_least(1),
         "Requests of one connection that may be in progress at the same time."),
    _row("headrace.schemas.topic", STRING, "_schemas", None,
         "The topic in which the schema registry stores its schemas; topics with "
         "key.schema.validation or value.schema.validation are checked against it. This broker "
         "must have a replica of it."),
)
# fmt: on

BROKER_ROWS: tuple[Setting, ...] = (
    *IDENTITY, *STORE, *TOPIC_DEFAULTS, *LOGS, *COMPACTION, *TOPICS, *NETWORK, *FETCHES,
    *GROUPS, *SHARE_GROUPS, *OFFSETS, *TRANSACTIONS, *QUOTAS, *WITHOUT_EFFECT, *HEADRACE,
)  # fmt: skip
