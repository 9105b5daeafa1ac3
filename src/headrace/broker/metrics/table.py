"""The metrics of a broker: their names, what they show, and the labels that tell values apart."""

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """One row: a name, what it counts, the labels that tell its values apart."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    doc: str
    labels: tuple[str, ...] = ()


_GROUP = ("group", "topic", "partition")
_PARTITION = ("topic", "partition")
_OTHERS = " The topic is empty for those beyond headrace.metrics.topics.max."

METRICS = (
    Metric("headrace_build_info", "gauge", "1, with the versions of Headrace and Python as labels.",
           ("version", "python")),
    Metric("process_cpu_seconds_total", "counter", "CPU time of the broker's process."),
    Metric("process_resident_memory_bytes", "gauge", "Memory of the process that is resident."),
    Metric("process_virtual_memory_bytes", "gauge", "Address space of the process."),
    Metric("process_open_fds", "gauge", "Open files and sockets of the process."),
    Metric("process_max_fds", "gauge", "Files and sockets that the process may open."),
    Metric("process_start_time_seconds", "gauge", "When the process started, in seconds since "
           "1970."),
    Metric("headrace_event_loop_delay_seconds", "histogram", "How late timers run, which is how "
           "long a request waits before the broker sees it; measured four times a second, "
           "with a resolution of a millisecond."),
    Metric("headrace_fsync_seconds", "histogram", "Duration of each sync of a file or a folder "
           "to the disk."),
    Metric("headrace_connections", "gauge", "Clients that are connected."),
    Metric("headrace_listener_connections", "gauge", "Clients that are connected, by listener.",
           ("listener",)),
    Metric("headrace_connections_accepted_total", "counter", "Connections that were accepted, "
           "after their TLS handshake if the listener has TLS.", ("listener",)),
    Metric("headrace_authentications_total", "counter", "Logins by SASL, and by certificate "
           "(TLS), by result: success or failure. A TLS handshake that fails for any reason is "
           "a failure of TLS.", ("listener", "mechanism", "result")),
    Metric("headrace_receive_bytes", "gauge", "Memory of unfinished and large requests, which "
           "queued.max.request.bytes bounds."),
    Metric("headrace_receive_waits", "gauge", "Connections that are not read because that memory "
           "is used up."),
    Metric("headrace_certificate_days_left", "gauge", "Days until the certificate of a listener "
           "expires.", ("listener",)),
    Metric("headrace_requests_total", "counter", "Requests of clients and of other brokers.",
           ("api",)),
    Metric("headrace_request_seconds", "histogram", "Time from the poll that found a request "
           "until its response is ready to be sent, without the time for which a Fetch waits for "
           "records. Above about 2,000 requests a second of an API, a sample of them.", ("api",)),
    Metric("headrace_fetch_wait_seconds", "histogram", "Time for which a Fetch waited for "
           "records, of those that were timed and had to wait."),
    Metric("headrace_request_errors_total", "counter", "Error codes in responses, one for each "
           "topic, partition or other item that has it.", ("api", "error")),
    Metric("headrace_topic_records_in_total", "counter", "Records appended to partitions that "
           "this broker leads." + _OTHERS, ("topic",)),
    Metric("headrace_topic_bytes_in_total", "counter", "Bytes of their batches.", ("topic",)),
    Metric("headrace_topic_records_out_total", "counter", "Records sent to consumers, counted by "
           "their offsets." + _OTHERS, ("topic",)),
    Metric("headrace_topic_bytes_out_total", "counter", "Bytes of their batches.", ("topic",)),
    Metric("headrace_topic_replication_bytes_in_total", "counter", "Bytes of batches that this "
           "broker fetched from leaders.", ("topic",)),
    Metric("headrace_topic_replication_bytes_out_total", "counter", "Bytes of batches that "
           "followers fetched from this broker.", ("topic",)),
    Metric("headrace_throttle_seconds_total", "counter", "Time that clients were told to wait "
           "because they had used up a quota; user or client_id is empty where the quota does not "
           "tell them apart.", ("quota", "user", "client_id")),
    Metric("headrace_retention_passes_total", "counter", "Looks for segments to delete."),
    Metric("headrace_retention_pass_seconds", "gauge", "Duration of the last look."),
    Metric("headrace_retention_deleted_segments_total", "counter", "Segments that retention "
           "deleted, by the setting that asked for it.", ("topic", "reason")),
    Metric("headrace_retention_deleted_bytes_total", "counter", "Bytes of those segments.",
           ("topic", "reason")),
    Metric("headrace_retention_unread_records_total", "counter", "Offsets that retention deleted "
           "before the group had read them.", ("group", "topic")),
    Metric("headrace_retention_held_bytes", "gauge", "Bytes that are due and kept for "
           "retention.hold.groups.", ("topic", "partition")),
    Metric("headrace_retention_left_seconds", "gauge", "Time until retention.ms deletes what the "
           "group reads next; only of groups within retention.warn.ratio.", _GROUP),
    Metric("headrace_retention_left_bytes", "gauge", "Bytes until retention.bytes or "
           "retention.hold.bytes deletes it, likewise.", _GROUP),
    Metric("headrace_retention_left_records", "gauge", "Records until retention.messages deletes "
           "it, likewise.", _GROUP),
    Metric("headrace_compaction_runs_total", "counter", "Compactions of a log that ended, by how: "
           "finished, given_up because the log had changed, failed.", ("result",)),
    Metric("headrace_compaction_read_bytes_total", "counter", "Bytes of batches that finished "
           "compactions read.", ("topic",)),
    Metric("headrace_compaction_read_records_total", "counter", "Records that they read.",
           ("topic",)),
    Metric("headrace_compaction_removed_bytes_total", "counter", "Bytes that they removed.",
           ("topic",)),
    Metric("headrace_compaction_removed_records_total", "counter", "Records that they removed.",
           ("topic",)),
    Metric("headrace_compaction_seconds_total", "counter", "Time that finished compactions took."),
    Metric("headrace_compaction_last_seconds", "gauge", "Duration of the last one."),
    Metric("headrace_compaction_last_end_timestamp_seconds", "gauge", "When it ended, in seconds "
           "since 1970; 0 if there was none since the start."),
    Metric("headrace_compaction_last_look_timestamp_seconds", "gauge", "When logs were last asked "
           "whether they are due; if that is long ago, compaction hangs."),
    Metric("headrace_compaction_max_dirty_ratio", "gauge", "Of all compacted logs the largest "
           "share of bytes that could be compacted and were not yet, at the last look."),
    Metric("headrace_compaction_in_progress", "gauge", "Logs that are being compacted."),
    Metric("headrace_compaction_uncleanable_partitions", "gauge", "Partitions whose compaction "
           "failed; it is tried again, less and less often."),
    Metric("headrace_compaction_uncleanable_bytes", "gauge", "What waits in them for compaction."),
    Metric("headrace_log_dir_free_bytes", "gauge", "Bytes that the broker can still write to the "
           "file system of a data folder.", ("path",)),
    Metric("headrace_log_dir_size_bytes", "gauge", "Size of that file system.", ("path",)),
    Metric("headrace_log_dirs_offline", "gauge", "Data folders that are offline."),
    Metric("headrace_damaged_partitions", "gauge", "Partitions with damage that is known."),
    Metric("headrace_damaged_offsets", "gauge", "Offsets that cannot be read because of damage."),
    Metric("headrace_replica_moves", "gauge", "Replicas on their way to another data folder."),
    Metric("headrace_brokers", "gauge", "Brokers in the cluster, as this one sees it."),
    Metric("headrace_is_controller", "gauge", "1 if this broker is the controller, else 0."),
    Metric("headrace_leaders", "gauge", "Partitions that this broker leads."),
    Metric("headrace_replicas", "gauge", "Partitions of which this broker has a replica."),
    Metric("headrace_under_replicated_partitions", "gauge", "Partitions that this broker leads "
           "and of which a replica is not in sync."),
    Metric("headrace_under_min_isr_partitions", "gauge", "Those of them with fewer replicas in "
           "sync than min.insync.replicas: they take no acks=all."),
    Metric("headrace_offline_partitions", "gauge", "Partitions of the cluster without a leader; "
           "only the controller counts them, others say 0."),
    Metric("headrace_leader_elections_total", "counter", "Partitions for which this broker "
           "became the leader; unclean if it was not in sync.", ("kind",)),
    Metric("headrace_transactions_open", "gauge", "Transactions that are open, of the "
           "transactional ids that this broker coordinates."),
    Metric("headrace_transaction_oldest_seconds", "gauge", "Age of the oldest of them."),
    Metric("headrace_isr_shrinks_total", "counter", "Replicas fell out of sync, of partitions "
           "that this broker leads."),
    Metric("headrace_isr_expands_total", "counter", "Replicas came in sync, likewise."),
    Metric("headrace_clock_jumps_total", "counter", "Times that the wall clock jumped by five "
           "seconds or more, compared with the monotonic clock.", ("direction",)),
    Metric("headrace_clock_behind_seconds", "gauge", "How far the wall clock is behind the latest "
           "time that it has shown since the start."),
    Metric("headrace_replica_lag_records_max", "gauge", "Records that the slowest follower of "
           "any partition led here lacks."),
)  # fmt: skip

PARTITION_METRICS = (
    Metric("headrace_partition_leader", "gauge", "1 if this broker leads the partition, else 0; "
           "for each replica of this broker.", _PARTITION),
    Metric("headrace_partition_replicas", "gauge", "Replicas of the partition.", _PARTITION),
    Metric("headrace_partition_in_sync_replicas", "gauge", "Those of them that are in sync.",
           _PARTITION),
    Metric("headrace_partition_start_offset", "gauge", "Log start offset of the replica. Offsets "
           "and size are of logs that were used since the broker started.", _PARTITION),
    Metric("headrace_partition_end_offset", "gauge", "Log end offset of the replica.", _PARTITION),
    Metric("headrace_partition_high_watermark", "gauge", "High watermark as the replica knows it.",
           _PARTITION),
    Metric("headrace_partition_size_bytes", "gauge", "Bytes of the replica's segments.",
           _PARTITION),
)  # fmt: skip
"""With `headrace.metrics.partitions`."""

_TOPIC = ("topic",)

KAFKA_METRICS = (
    Metric("kafka_server_brokertopicmetrics_messagesin_total", "counter", "Records that were "
           "appended: by topic, and of all topics without a label.", _TOPIC),
    Metric("kafka_server_brokertopicmetrics_bytesin_total", "counter", "Their bytes, likewise.",
           _TOPIC),
    Metric("kafka_server_brokertopicmetrics_bytesout_total", "counter", "Bytes that were sent to "
           "consumers, likewise.", _TOPIC),
    Metric("kafka_server_brokertopicmetrics_replicationbytesin_total", "counter", "Bytes that "
           "were fetched from leaders."),
    Metric("kafka_server_brokertopicmetrics_replicationbytesout_total", "counter", "Bytes that "
           "were sent to followers."),
    Metric("kafka_server_brokertopicmetrics_totalproducerequests_total", "counter", "Produce "
           "requests."),
    Metric("kafka_server_brokertopicmetrics_totalfetchrequests_total", "counter", "Fetch "
           "requests."),
    Metric("kafka_server_brokertopicmetrics_failedproducerequests_total", "counter", "Partitions "
           "in Produce responses with an error."),
    Metric("kafka_server_brokertopicmetrics_failedfetchrequests_total", "counter", "Partitions "
           "in Fetch responses with an error."),
    Metric("kafka_server_replicamanager_underreplicatedpartitions", "gauge", "As "
           "headrace_under_replicated_partitions."),
    Metric("kafka_server_replicamanager_underminisrpartitioncount", "gauge", "As "
           "headrace_under_min_isr_partitions."),
    Metric("kafka_server_replicamanager_leadercount", "gauge", "As headrace_leaders."),
    Metric("kafka_server_replicamanager_partitioncount", "gauge", "As headrace_replicas."),
    Metric("kafka_controller_kafkacontroller_activecontrollercount", "gauge", "As "
           "headrace_is_controller."),
    Metric("kafka_controller_kafkacontroller_offlinepartitionscount", "gauge", "As "
           "headrace_offline_partitions."),
    Metric("kafka_controller_controllerstats_uncleanleaderelections_total", "counter", "Unclean "
           "elections that made this broker a leader."),
    Metric("kafka_log_logmanager_offlinelogdirectorycount", "gauge", "As "
           "headrace_log_dirs_offline."),
    Metric("kafka_server_socket_server_metrics_connection_count", "gauge", "As "
           "headrace_listener_connections.", ("listener",)),
)  # fmt: skip
"""With `headrace.metrics.kafka.names`."""

KAFKA_PARTITION_METRICS = (
    Metric("kafka_log_log_size", "gauge", "As headrace_partition_size_bytes.", _PARTITION),
    Metric("kafka_log_log_logstartoffset", "gauge", "As headrace_partition_start_offset.",
           _PARTITION),
    Metric("kafka_log_log_logendoffset", "gauge", "As headrace_partition_end_offset.", _PARTITION),
    Metric("kafka_cluster_partition_underminisr", "gauge", "1 if a partition that this broker "
           "leads has fewer replicas in sync than min.insync.replicas, else 0.", _PARTITION),
    Metric("kafka_cluster_partition_atminisr", "gauge", "1 if it has exactly as many, else 0.",
           _PARTITION),
)  # fmt: skip
"""With both."""
