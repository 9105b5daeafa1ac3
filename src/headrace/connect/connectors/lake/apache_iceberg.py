"""The Iceberg sink with the options of Apache Iceberg's own sink for Kafka Connect."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.connect.connectors.lake.tables import refuse_hdfs
from headrace.connect.plugin import REQUIRED, Option, OptionError, Password, TableSink

if TYPE_CHECKING:
    import pyarrow as pa

CATALOG = "iceberg.catalog."
REST = "org.apache.iceberg.rest.RESTCatalog"
SECRETS = ("credential", "token", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
PROPERTIES = ("uri", "warehouse", "oauth2-server-uri", "scope", "s3.endpoint", "client.region")
"""Properties of a catalog that PyIceberg has with the same names."""


class ApacheIcebergSink(TableSink):
    """Writes records as rows of an Iceberg table, exactly once."""

    spark_format = "headrace-iceberg"
    aliases = ("org.apache.iceberg.connect.IcebergSinkConnector",)
    ignored = (
        "iceberg.catalog.io-impl",
        "iceberg.catalog.s3.path-style-access",
        "iceberg.control.commit.interval-ms",
        "iceberg.control.commit.threads",
        "iceberg.control.commit.timeout-ms",
        "iceberg.control.group-id-prefix",
        "iceberg.control.topic",
        "iceberg.coordinator.transactional.prefix",
        "iceberg.tables.schema-force-optional",
    )
    options = (
        Option(
            "iceberg.tables", str, REQUIRED, "The table, as namespace.name.", importance="high"
        ),
        Option(
            "iceberg.tables.default-partition-by", str, "",
            "Columns by which a new table is partitioned, separated by commas.",
        ),
        Option(
            "iceberg.tables.auto-create-enabled", bool, True,
            "Only true: a missing table is created.",
        ),
        Option(
            "iceberg.tables.evolve-schema-enabled", bool, True,
            "Only true: new columns are added.",
        ),
        Option("iceberg.catalog", str, "iceberg", "The name of the catalog."),
        Option(f"{CATALOG}type", str, "", "The catalog.", choices=("", "rest", "hive", "glue")),
        Option(f"{CATALOG}catalog-impl", str, "", "The class of the catalog.", choices=("", REST)),
        *(Option(f"{CATALOG}{name}", str, "", "A property of the catalog.") for name in PROPERTIES),
        *(
            Option(f"{CATALOG}{name}", Password, Password(""), "A property of the catalog.")
            for name in SECRETS
        ),
    )  # fmt: skip
    iceberg_tables: str
    iceberg_catalog: str

    def table_options(self) -> Mapping[str, str]:
        for name in ("auto-create-enabled", "evolve-schema-enabled"):
            option = f"iceberg.tables.{name}"
            if self.config.get(option, "true").strip().lower() != "true":
                raise OptionError(
                    option, "Only true is supported: tables are created, and columns are added."
                )
        if "," in self.iceberg_tables:
            raise OptionError(
                "iceberg.tables", "Several tables are not supported: use a connector for each."
            )
        if "." not in self.iceberg_tables:
            raise OptionError("iceberg.tables", "Expected the table as namespace.name.")
        catalog = self._catalog()
        if not catalog.get("type"):
            raise OptionError(
                f"{CATALOG}type",
                "Set the type of the catalog: rest, hive or glue. Others are not supported here.",
            )
        refuse_hdfs(f"{CATALOG}warehouse", catalog.get("warehouse", ""))
        partition_by = self.config.get("iceberg.tables.default-partition-by", "").strip()
        if "(" in partition_by:
            raise OptionError(
                "iceberg.tables.default-partition-by",
                f"{partition_by}: only the values of columns are supported, not functions of them.",
            )
        return {
            "table": self.iceberg_tables,
            "catalog": self.iceberg_catalog,
            **({"partitionBy": partition_by} if partition_by else {}),
            **{f"catalog.{name}": value for name, value in catalog.items()},
        }

    def table_schema(self) -> "pa.Schema | None":
        from headrace.pipelines.lake.iceberg import IcebergLake

        return IcebergLake.from_options(self.table_options()).schema()

    def _catalog(self) -> dict[str, str]:
        """The properties of the catalog as PyIceberg has them."""
        named = ("type", *PROPERTIES, *SECRETS)
        given = {name: self.config.get(CATALOG + name, "").strip() for name in named}
        if self.config.get(f"{CATALOG}catalog-impl"):
            given["type"] = given["type"] or "rest"
        return {name: value for name, value in given.items() if value}
