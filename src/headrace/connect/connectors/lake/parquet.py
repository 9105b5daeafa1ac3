"""Sinks for plain files: Parquet or JSON lines in folders, on disk, in S3 and in HDFS."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from headrace.connect.connectors.lake.partitioners import (
    FLUSH_SIZE,
    PARTITIONER_OPTIONS,
    folder_rule,
)
from headrace.connect.connectors.lake.stores import (
    S3_OPTIONS,
    S3Access,
    check_reachable,
)
from headrace.connect.plugin import REQUIRED, Option, OptionError, TableSink

if TYPE_CHECKING:
    from headrace.pipelines.lake.folders import FolderRule

S3_SCHEMES = ("s3", "s3a")
_TOPICS_DIR = Option("topics.dir", str, "topics", "The folder above those of the topics.")
_IGNORED = (
    "directory.delim",
    "file.delim",
    "filename.offset.zero.pad.width",
    "parquet.codec",
    "retry.backoff.ms",
    "rotate.interval.ms",
    "rotate.schedule.interval.ms",
    "schema.cache.size",
    "shutdown.timeout.ms",
    "storage.class",
)


class FilesInFolders(TableSink):
    """The common part of the sinks for plain files."""

    spark_format = "headrace-parquet"
    origin: ClassVar[Mapping[str, str]] = {
        **TableSink.origin,
        # Folders do not depend on fields of the value that have the same names.
        **{f"__headrace_{name}": name for name in ("topic", "partition", "timestamp")},
    }
    by_topic: ClassVar[bool] = True
    """Whether each topic has a folder."""
    flush_size: int

    def check(self) -> None:
        super().check()
        if urlsplit(self.root()).scheme not in ("", "file"):
            check_reachable(self.place_option, self.root(), self.storage())

    place_option: ClassVar[str]
    """The option with the place, for errors."""

    def root(self) -> str:
        """The folder or address above those of the topics."""
        raise NotImplementedError

    def storage(self) -> Mapping[str, str]:
        """How the place is reached."""
        raise NotImplementedError

    def file_format(self) -> str:
        return "parquet"

    def rule(self) -> "FolderRule":
        """Which folders rows have."""
        return folder_rule(self, by_topic=self.by_topic)

    def table_options(self) -> Mapping[str, str]:
        if self.flush_size < 1:
            raise OptionError("flush.size", "Expected at least 1.")
        return {
            "path": self.root(),
            "folders": self.rule().to_json(),
            "rowsPerFile": str(self.flush_size),
            "fileFormat": self.file_format(),
            **{f"storage.{name}": value for name, value in self.storage().items()},
        }


class ParquetSink(FilesInFolders):
    """Writes Parquet files or JSON lines in folders, exactly once."""

    place_option = "path"
    options = (
        Option(
            "path", str, REQUIRED,
            "The folder or address (s3://, hdfs://); a topic has a folder in it.",
            importance="high",
        ),
        Option(
            "format", str, "parquet", "What the files contain.", choices=("parquet", "jsonl"),
            importance="high",
        ),
        FLUSH_SIZE,
        *PARTITIONER_OPTIONS,
        *S3_OPTIONS,
    )  # fmt: skip
    path: str
    format: str

    def root(self) -> str:
        scheme = urlsplit(self.path).scheme
        if scheme not in ("", "file", *S3_SCHEMES, "hdfs"):
            raise OptionError(
                "path", f"{self.path}: expected a folder, or an address with s3:// or hdfs://"
            )
        return self.path.rstrip("/")

    def storage(self) -> Mapping[str, str]:
        is_s3 = urlsplit(self.path).scheme in S3_SCHEMES
        return S3Access.of(self).object_store() if is_s3 else {}

    def file_format(self) -> str:
        return self.format


class _OfConfluent(FilesInFolders):
    """The part that Confluent's sinks of files share."""

    format_class: str
    formats: ClassVar[Mapping[str, str]] = {}
    """Our formats by the classes that are accepted."""

    def file_format(self) -> str:
        found = self.formats.get(self.format_class)
        if found is None:
            raise OptionError(
                "format.class",
                f"{self.format_class} is not supported; expected one of {', '.join(self.formats)}",
            )
        return found


class S3Sink(_OfConfluent):
    """Writes files into a bucket of S3, exactly once, with the options of Confluent's sink."""

    place_option = "s3.bucket.name"
    aliases = ("io.confluent.connect.s3.S3SinkConnector",)
    ignored = (
        *_IGNORED,
        "s3.part.retries",
        "s3.part.size",
        "s3.retry.backoff.ms",
    )
    formats: ClassVar[Mapping[str, str]] = {
        "io.confluent.connect.s3.format.parquet.ParquetFormat": "parquet",
        "io.confluent.connect.s3.format.json.JsonFormat": "jsonl",
    }
    options = (
        Option("s3.bucket.name", str, REQUIRED, "The bucket.", importance="high"),
        Option(
            "format.class", str, REQUIRED, "What the files contain: ParquetFormat or JsonFormat.",
            importance="high",
        ),
        _TOPICS_DIR,
        FLUSH_SIZE,
        *PARTITIONER_OPTIONS,
        *S3_OPTIONS,
    )  # fmt: skip
    s3_bucket_name: str
    topics_dir: str

    def root(self) -> str:
        return f"s3://{self.s3_bucket_name}/{self.topics_dir.strip('/')}".rstrip("/")

    def storage(self) -> Mapping[str, str]:
        return S3Access.of(self).object_store()


class HdfsSink(_OfConfluent):
    """Writes files into HDFS, exactly once, with the options of Confluent's sink."""

    place_option = "hdfs.url"
    aliases = (
        "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
        "io.confluent.connect.hdfs.HdfsSinkConnector",
    )
    ignored = (*_IGNORED, "hadoop.conf.dir", "hadoop.home", "logs.dir")
    formats: ClassVar[Mapping[str, str]] = {
        f"io.confluent.connect.{package}.{name}": kind
        for package in ("hdfs3", "hdfs")
        for name, kind in (("parquet.ParquetFormat", "parquet"), ("json.JsonFormat", "jsonl"))
    }
    options = (
        Option("hdfs.url", str, REQUIRED, "The NameNode: hdfs://host:8020.", importance="high"),
        Option(
            "format.class", str, REQUIRED, "What the files contain: ParquetFormat or JsonFormat.",
            importance="high",
        ),
        _TOPICS_DIR,
        FLUSH_SIZE,
        *PARTITIONER_OPTIONS,
    )  # fmt: skip
    hdfs_url: str
    topics_dir: str

    def root(self) -> str:
        if urlsplit(self.hdfs_url).scheme != "hdfs":
            raise OptionError("hdfs.url", f"{self.hdfs_url}: expected hdfs://host:port")
        return f"{self.hdfs_url.rstrip('/')}/{self.topics_dir.strip('/')}".rstrip("/")

    def storage(self) -> Mapping[str, str]:
        return {}
