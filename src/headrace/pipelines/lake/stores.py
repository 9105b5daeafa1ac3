"""Where tables of plain files are: a folder on disk, an S3 bucket or a folder in HDFS.

HDFS is reached by the client of deltalake, which speaks Hadoop's own protocol: Spark's tasks have
neither Java nor Hadoop's native library. It reads HADOOP_CONF_DIR and HADOOP_USER_NAME.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

S3 = ("s3", "s3a")
HDFS = ("hdfs",)


def opened(uri: str, options: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """The file system of an address and the path in it; ValueError for other schemes."""
    place = urlsplit(uri)
    if place.scheme in ("", "file"):
        path = unquote(place.path) if place.scheme else uri
        return pafs.LocalFileSystem(), str(Path(path).absolute())
    if place.scheme in S3:
        return _s3({name.lower(): value for name, value in options.items()}), (
            f"{place.netloc}{place.path.rstrip('/')}"
        )
    if place.scheme in HDFS:
        return pafs.PyFileSystem(_hdfs_handler()(uri)), ""
    raise ValueError(f"{uri}: expected a folder, or an address with s3://, s3a:// or hdfs://")


def _s3(options: Mapping[str, str]) -> pafs.S3FileSystem:
    """With the names that Delta's object store has, such as aws_secret_access_key."""
    endpoint = options.get("aws_endpoint_url") or os.environ.get("AWS_ENDPOINT_URL", "")
    parts = urlsplit(endpoint)
    return pafs.S3FileSystem(
        access_key=options.get("aws_access_key_id"),
        secret_key=options.get("aws_secret_access_key"),
        session_token=options.get("aws_session_token"),
        region=options.get("aws_region") or os.environ.get("AWS_REGION"),
        endpoint_override=(parts.netloc + parts.path.rstrip("/")) or None,
        scheme=parts.scheme or "https",
        force_virtual_addressing=options.get("aws_virtual_hosted_style_request") == "true",
    )


@cache
def _hdfs_handler() -> type[pafs.FileSystemHandler]:
    from deltalake.fs import DeltaStorageHandler

    class HdfsHandler(DeltaStorageHandler):
        """With files that take buffers, too; those of deltalake take only bytes."""

        def open_output_stream(
            self, path: str, metadata: dict[str, str] | None = None
        ) -> pa.PythonFile:
            return pa.PythonFile(_BytesFile(self._handler.open_output_stream(path, metadata)))

    return HdfsHandler


class _BytesFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, content: object) -> int:
        written: int = self._file.write(bytes(content))  # type: ignore[call-overload]
        return written
