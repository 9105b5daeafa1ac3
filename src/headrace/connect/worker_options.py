"""The options that every connector has, whatever its class: those of Kafka Connect, and ours."""

from collections.abc import Sequence

from headrace.connect.config_keys import (
    ConfigKey,
    at_least,
    non_empty,
    one_of,
    one_of_any_case,
    plain_name,
    unique,
)

COMMON, TRANSFORMS, PREDICATES, ERRORS = "Common", "Transforms", "Predicates", "Error Handling"
TOPIC_CREATION, EXACTLY_ONCE = "Topic Creation", "Exactly Once Support"
OFFSETS_TOPIC, HEADRACE = "offsets.topic", "Headrace"

PREFIXES = (
    "consumer.override.",
    "producer.override.",
    "admin.override.",
    "topic.creation.",
)
"""Options whose names go on with a name that the worker does not check."""

SHARED = (
    ConfigKey("name", "STRING", None, "The name of the connector; it is unique in the cluster.",
              True, "HIGH", COMMON, 1, "MEDIUM", "Connector name", plain_name),
    ConfigKey("connector.class", "STRING", None,
              "The class of the connector: its name, its name without `Connector`, or the Java "
              "class whose configuration it accepts.",
              True, "HIGH", COMMON, 2, "LONG", "Connector class"),
    ConfigKey("connector.plugin.version", "STRING", None,
              "Has no effect: one version of a connector is installed.",
              False, "MEDIUM", COMMON, 3, "MEDIUM", "Connector version"),
    ConfigKey("tasks.max", "INT", "1",
              "The largest number of tasks; Spark reads and writes with as many at a time.",
              False, "HIGH", COMMON, 4, "SHORT", "Tasks max", at_least(1)),
    ConfigKey("tasks.max.enforce", "BOOLEAN", "true",
              "Has no effect: there are never more than tasks.max tasks.",
              False, "LOW", COMMON, 5, "SHORT", "Enforce tasks max"),
    ConfigKey("key.converter", "CLASS", None, "The format of keys in Kafka.",
              False, "LOW", COMMON, 6, "SHORT", "Key converter class"),
    ConfigKey("key.converter.plugin.version", "STRING", None, "Has no effect.",
              False, "LOW", COMMON, 7, "SHORT", "Key converter version"),
    ConfigKey("value.converter", "CLASS", None, "The format of values in Kafka.",
              False, "LOW", COMMON, 8, "SHORT", "Value converter class"),
    ConfigKey("value.converter.plugin.version", "STRING", None, "Has no effect.",
              False, "LOW", COMMON, 9, "SHORT", "Value converter version"),
    ConfigKey("header.converter", "CLASS", None, "The format of headers in Kafka.",
              False, "LOW", COMMON, 10, "SHORT", "Header converter class"),
    ConfigKey("header.converter.plugin.version", "STRING", None, "Has no effect.",
              False, "LOW", COMMON, 11, "SHORT", "Header converter version"),
    ConfigKey("transforms", "LIST", "", "Names of the transformations, in their order.",
              False, "LOW", TRANSFORMS, 12, "LONG", "Transforms", unique),
    ConfigKey("predicates", "LIST", "", "Names of the predicates that transformations use.",
              False, "LOW", PREDICATES, 13, "LONG", "Predicates", unique),
    ConfigKey("config.action.reload", "STRING", "restart",
              "What happens when a secret behind a reference changes. Secrets are read when the "
              "connector starts.",
              False, "LOW", COMMON, 14, "MEDIUM", "Reload Action", one_of("none", "restart")),
    ConfigKey("errors.retry.timeout", "LONG", "0",
              "Has no effect: errors that pass are retried until they have passed.",
              False, "MEDIUM", ERRORS, 1, "MEDIUM", "Retry Timeout for Errors"),
    ConfigKey("errors.retry.delay.max.ms", "LONG", "60000",
              "The longest pause before the connector is started again after an error.",
              False, "MEDIUM", ERRORS, 2, "MEDIUM", "Maximum Delay Between Retries for Errors"),
    ConfigKey("errors.tolerance", "STRING", "none",
              "none: a record that cannot be processed stops the connector; all: it is skipped, "
              "and goes to the dead letter queue if there is one.",
              False, "MEDIUM", ERRORS, 3, "SHORT", "Error Tolerance", one_of("none", "all")),
    ConfigKey("errors.log.enable", "BOOLEAN", "false", "Log records that cannot be processed.",
              False, "MEDIUM", ERRORS, 4, "SHORT", "Log Errors"),
    ConfigKey("errors.log.include.messages", "BOOLEAN", "false",
              "Whether the log shows the topic, partition and offset of these records.",
              False, "MEDIUM", ERRORS, 5, "SHORT", "Log Error Details"),
)  # fmt: skip

_DEAD_LETTERS = (
    ConfigKey("errors.deadletterqueue.topic.name", "STRING", "",
              "The topic for records that cannot be processed; empty: none.",
              False, "MEDIUM", ERRORS, 6, "MEDIUM", "Dead Letter Queue Topic Name"),
    ConfigKey("errors.deadletterqueue.topic.replication.factor", "SHORT", "3",
              "The replication factor with which this topic is created.",
              False, "MEDIUM", ERRORS, 7, "MEDIUM", "Dead Letter Queue Topic Replication Factor"),
    ConfigKey("errors.deadletterqueue.context.headers.enable", "BOOLEAN", "false",
              "Whether dead letters have headers that describe their origin and the error.",
              False, "MEDIUM", ERRORS, 8, "MEDIUM", "Enable Error Context Headers"),
)  # fmt: skip

_SINK = (
    ConfigKey("topics", "LIST", "", "The topics to read.",
              False, "HIGH", COMMON, 4, "LONG", "Topics"),
    ConfigKey("topics.regex", "STRING", "", "A regular expression for the topics to read.",
              False, "HIGH", COMMON, 4, "LONG", "Topics regex"),
    *_DEAD_LETTERS,
)  # fmt: skip

_SOURCE = (
    ConfigKey("topic.creation.groups", "LIST", "", "Names of groups of settings for new topics.",
              False, "LOW", TOPIC_CREATION, 1, "LONG", "Topic Creation Groups", unique),
    ConfigKey("exactly.once.support", "STRING", "requested",
              "required: the configuration is refused if the connector cannot write each record "
              "exactly once.",
              False, "MEDIUM", EXACTLY_ONCE, 2, "SHORT", "Exactly once support",
              one_of_any_case("required", "requested")),
    ConfigKey("transaction.boundary", "STRING", "poll",
              "Has no effect: a transaction has the records of one epoch.",
              False, "MEDIUM", EXACTLY_ONCE, 3, "SHORT", "Transaction Boundary",
              one_of_any_case("interval", "poll", "connector")),
    ConfigKey("transaction.boundary.interval.ms", "LONG", None, "Has no effect.",
              False, "LOW", EXACTLY_ONCE, 4, "SHORT", "Transaction boundary interval",
              at_least(0)),
    ConfigKey("offsets.storage.topic", "STRING", None,
              "Has no effect: all connectors of a worker share one offsets topic.",
              False, "LOW", OFFSETS_TOPIC, 1, "LONG", "Offsets topic", non_empty),
    *_DEAD_LETTERS,
)  # fmt: skip

_OURS = (
    ConfigKey("poll.interval.ms", "LONG", "200",
              "How often the connector looks for new records.",
              False, "MEDIUM", HEADRACE, 1, "SHORT", "Poll interval", at_least(0)),
    ConfigKey("headrace.driver", "STRING", "shared",
              "own: the connector has a Spark driver of its own.",
              False, "LOW", HEADRACE, 2, "SHORT", "Spark driver", one_of("shared", "own")),
)  # fmt: skip

_OURS_OF = {
    "source": (
        ConfigKey("headrace.batch.max.rows", "INT", "100000",
                  "How many rows a source reads in one epoch at most, all partitions together.",
                  False, "LOW", HEADRACE, 3, "SHORT", "Rows of an epoch", at_least(1)),
        ConfigKey("headrace.spool.max.bytes", "LONG", "268435456",
                  "How many bytes of messages a source that receives them stores until they are in "
                  "the topic; it then waits before it receives more.",
                  False, "LOW", HEADRACE, 4, "SHORT", "Size of the spool", at_least(1)),
    ),
    "sink": tuple(
        ConfigKey(f"{part}.schema", "STRING", None,
                  f"The type of JSON {part}s without a schema, as DDL: id bigint, name string.",
                  False, "MEDIUM", HEADRACE, order, "LONG", f"{part.capitalize()} schema")
        for order, part in enumerate(("key", "value"), 3)
    ),
}  # fmt: skip


def worker_options(kind: str) -> Sequence[ConfigKey]:
    """The options of all connectors of a kind, `source` or `sink`."""
    return (*SHARED, *(_SINK if kind == "sink" else _SOURCE), *_OURS, *_OURS_OF[kind])
