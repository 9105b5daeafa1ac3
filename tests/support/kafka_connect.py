"""Kafka Connect's own converters and transforms, called in the Java process of Spark.

They are the oracle of the tests of ours. Kafka's jars have a class loader of their own, so that
they do not meet Spark's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tests.support.java import jars

LOADER = "_loader_of_kafka_connect"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class Record:
    """A record; key and value are documents of JsonConverter with schemas.enable=true, or None."""

    value: Any = None
    key: Any = None
    topic: str = "orders"
    partition: int = 3
    offset: int = 42
    timestamp_ms: int | None = 1_700_000_000_123
    headers: Sequence[tuple[str, str | None]] = ()


class KafkaConnect:
    """Classes of Kafka Connect through Spark's gateway to Java."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        self._loader = vars(self._gateway).get(LOADER) or self._new_loader()

    def _new_loader(self) -> Any:
        """The gateway knows each class once, so it keeps one loader."""
        found = [
            self._jvm.java.io.File(str(jar)).toURI().toURL() for jar in sorted(jars().glob("*.jar"))
        ]
        urls = self._array(self._jvm.java.net.URL, found)
        platform = self._jvm.java.lang.ClassLoader.getPlatformClassLoader()
        loader = self._jvm.java.net.URLClassLoader(urls, platform)
        setattr(self._gateway, LOADER, loader)
        return loader

    def converter(self, class_name: str, is_key: bool = False, **config: str) -> Any:
        made = self._new(class_name)
        given = {name.replace("_", "."): value for name, value in config.items()}
        made.configure(given, is_key)
        return made

    def transform(self, class_name: str, config: Mapping[str, str], record: Record) -> Any:
        """The record after the transform, None if it is dropped, or the text of the exception."""
        return self.transform_all(class_name, config, [record])[0]

    def transform_all(
        self, class_name: str, config: Mapping[str, str], records: Sequence[Record]
    ) -> list[Any]:
        made = self._new(class_name)
        made.configure(dict(config))
        results: list[Any] = []
        for record in records:
            try:
                applied = made.apply(self._sink_record(record))
            except Exception as error:
                # PySpark replaces some exceptions of Java by its own.
                thrown = getattr(error, "java_exception", None)
                results.append(str(error) if thrown is None else str(thrown.getMessage()))
            else:
                results.append(None if applied is None else self._result(applied))
        return results

    def predicate(self, class_name: str, config: Mapping[str, str], record: Record) -> bool:
        made = self._new(class_name)
        made.configure(dict(config))
        return bool(made.test(self._sink_record(record)))

    def _result(self, record: Any) -> Record:
        headers = self._new("org.apache.kafka.connect.storage.SimpleHeaderConverter")
        found = []
        iterator = record.headers().iterator()
        while iterator.hasNext():
            header = iterator.next()
            octets = headers.fromConnectHeader("", header.key(), header.schema(), header.value())
            found.append((header.key(), None if octets is None else bytes(octets).decode()))
        return Record(
            self._json(record.valueSchema(), record.value()),
            self._json(record.keySchema(), record.key()),
            record.topic(),
            record.kafkaPartition(),
            record.kafkaOffset(),
            record.timestamp(),
            found,
        )

    def _json(self, schema: Any, value: Any) -> Any:
        octets = self.converter(JSON_CONVERTER, schemas_enable="true").fromConnectData(
            "t", schema, value
        )
        return None if octets is None else json.loads(bytes(octets))

    def _sink_record(self, record: Record) -> Any:
        converter = self.converter(JSON_CONVERTER, schemas_enable="true")
        key, value = (
            converter.toConnectData("t", None if part is None else json.dumps(part).encode())
            for part in (record.key, record.value)
        )
        kinds = self._loader.loadClass("org.apache.kafka.common.record.TimestampType")
        create_time = kinds.getField("CREATE_TIME").get(None)
        long = self._jvm.java.lang.Long
        arguments = [
            *(record.topic, record.partition, key.schema(), key.value()),
            *(value.schema(), value.value(), long.valueOf(record.offset)),
            None if record.timestamp_ms is None else long.valueOf(record.timestamp_ms),
            create_time,
        ]
        made = self._new("org.apache.kafka.connect.sink.SinkRecord", arguments)
        header_converter = self._new("org.apache.kafka.connect.storage.SimpleHeaderConverter")
        for name, text in record.headers:
            assert text is not None, "headers without a value only come out"
            made.headers().add(name, header_converter.toConnectHeader("", name, text.encode()))
        return made

    def _new(self, class_name: str, arguments: Sequence[Any] = ()) -> Any:
        kind = self._loader.loadClass(class_name)
        for constructor in kind.getConstructors():
            if constructor.getParameterCount() == len(arguments):
                given = self._array(self._jvm.java.lang.Object, arguments)
                return constructor.newInstance(given)
        raise AssertionError(f"{class_name} has no constructor with {len(arguments)} arguments")

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        array = self._gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array
