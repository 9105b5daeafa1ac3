"""The log folders of brokers (DescribeLogDirs): sizes, free space and errors."""

from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.errors import ErrorCode, KafkaError

_UNKNOWN_BYTES = -1


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A log folder of a broker; unknown values are None."""

    broker: int
    path: str
    error: str
    """Why the folder or the broker cannot be used; empty if it can."""
    partitions: int
    size_bytes: int
    """Of all partitions in it."""
    total_bytes: int | None
    usable_bytes: int | None


def describe_log_folders(cluster: Cluster) -> list[LogFolder]:
    """The log folders of all brokers. A broker that does not answer has a row with its error."""
    from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
    from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse

    found: list[LogFolder] = []
    for broker in sorted(cluster.retry("listing brokers", cluster.brokers)):
        try:
            answer = cluster.ask(
                DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, broker
            )
        except (KafkaError, Unreachable) as error:
            found.append(LogFolder(broker, "", str(error), 0, 0, None, None))
            continue
        if int(answer.error_code):
            reason = ErrorCode(int(answer.error_code)).name
            found.append(LogFolder(broker, "", reason, 0, 0, None, None))
        for folder in answer.results:
            code = int(folder.error_code)
            rows = [row for topic in folder.topics for row in topic.partitions]
            found.append(
                LogFolder(
                    broker,
                    folder.log_dir,
                    ErrorCode(code).name if code else "",
                    len(rows),
                    sum(int(row.partition_size) for row in rows),
                    _known(int(folder.total_bytes)),
                    _known(int(folder.usable_bytes)),
                )
            )
    return found


def _known(value: int) -> int | None:
    return None if value == _UNKNOWN_BYTES else value
