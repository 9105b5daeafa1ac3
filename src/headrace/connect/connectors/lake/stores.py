"""Options of the places where tables are, and what the libraries call them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.connect.plugin import Connector, Option, OptionError, Password

S3_OPTIONS: Sequence[Option] = (
    Option(
        "aws.access.key.id", Password, Password(""),
        "The access key of S3; by default that of the environment.",
    ),
    Option(
        "aws.secret.access.key", Password, Password(""),
        "The secret of the access key; by default that of the environment.",
    ),
    Option("aws.session.token", Password, Password(""), "The token of temporary credentials."),
    Option("s3.region", str, "", "The region of the bucket; by default that of the environment."),
    Option(
        "store.url", str, "",
        "The address of a server that has the interface of S3, such as http://minio:9000.",
    ),
    Option(
        "s3.path.style.access.enabled", bool, True,
        "With store.url: whether the bucket is in the path of requests, and not in the host name.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class S3Access:
    """How S3 is reached. What is empty comes from the environment."""

    key: str
    secret: str
    token: str
    region: str
    url: str
    path_style: bool

    @classmethod
    def of(cls, connector: Connector) -> "S3Access":
        """From the values of S3_OPTIONS; OptionError if they contradict each other."""
        values = {option.name: getattr(connector, option.attribute) for option in S3_OPTIONS}
        if bool(values["aws.access.key.id"]) != bool(values["aws.secret.access.key"]):
            raise OptionError(
                "aws.secret.access.key",
                "Set both aws.access.key.id and aws.secret.access.key, or neither.",
            )
        url = values["store.url"]
        if url and urlsplit(url).scheme not in ("http", "https"):
            raise OptionError("store.url", f"{url}: expected an address such as http://minio:9000")
        return cls(
            values["aws.access.key.id"],
            values["aws.secret.access.key"],
            values["aws.session.token"],
            values["s3.region"],
            url,
            values["s3.path.style.access.enabled"],
        )

    def object_store(self) -> dict[str, str]:
        """As options of Delta's object store, which the Parquet sink has, too."""
        found = {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true" if self.url.startswith("http:") else "",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true" if self.url and not self.path_style else "",
        }
        return {name: value for name, value in found.items() if value}

    def file_io(self) -> dict[str, str]:
        """As properties of PyIceberg."""
        found = {
            "s3.access-key-id": self.key,
            "s3.secret-access-key": self.secret,
            "s3.session-token": self.token,
            "s3.region": self.region,
            "s3.endpoint": self.url,
            "s3.force-virtual-addressing": "true" if self.url and not self.path_style else "",
        }
        return {name: value for name, value in found.items() if value}


def check_reachable(option: str, uri: str, storage: Mapping[str, str]) -> None:
    """OptionError if the place does not answer, or the bucket does not exist."""
    from pyarrow.fs import FileType

    from headrace.pipelines.lake.stores import S3, opened

    try:
        filesystem, path = opened(uri, storage)
        if urlsplit(uri).scheme in S3:
            bucket = path.partition("/")[0]
            if filesystem.get_file_info(bucket).type != FileType.Directory:
                raise OptionError(option, f"The bucket {bucket} does not exist.")
        else:
            filesystem.get_file_info(path)
    except ValueError as error:
        raise OptionError(option, str(error)) from None
    except OSError as error:
        raise OptionError(option, f"{uri} cannot be reached: {error}") from None
