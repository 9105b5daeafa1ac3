"""Promises of the loaders of settings files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SettingError
from headrace.settings import Settings, load_properties, load_toml, parse_assignment
from headrace.settings.files import read_properties

# The names and values that the server.properties of a Kafka 4.1 download sets.
KAFKA_4_1 = """
# comment
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

# The same for a Kafka 3 that still runs on ZooKeeper.
KAFKA_3 = """
broker.id=0
num.network.threads=3
socket.send.buffer.bytes=102400
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
inter.broker.protocol.version=3.9
"""


def test_the_files_of_kafkas_downloads_load(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(KAFKA_4_1)
    settings = Settings.parse(load_properties(path))
    assert settings.integer("node.id") == 1
    assert settings.words("controller.listener.names") == ("CONTROLLER",)
    assert set(settings.ignored) == {"process.roles", "controller.quorum.bootstrap.servers"}
    path.write_text(KAFKA_3)
    older = Settings.parse(load_properties(path))
    assert older.integer("node.id") == 0
    assert older.text("zookeeper.connect") == "localhost:2181"


def test_properties_are_read_by_javas_rules() -> None:
    text = (
        "# comment\n! comment\n\n"
        "a=1\nb : 2\nc 3\n  d\t=\t4  \ne\nf==5\n"
        "g=x,\\\n    y,\\\n    z\n"
        "h\\=i\\:j\\ k=v\n"
        "l=\\u00e9\\t\\\\n\n"
        "m=1\\\\\nn=2\r\no=3\rp=4\n"
        "# no \\\nq=5\n"
        "r=6\\"
    )
    assert [(key, value) for _, key, value in read_properties(text)] == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", "4  "),
        ("e", ""),
        ("f", "=5"),
        ("g", "x,y,z"),
        ("h=i:j k", "v"),
        ("l", "é\t\\n"),
        ("m", "1\\"),
        ("n", "2"),
        ("o", "3"),
        ("p", "4"),
        ("q", "5"),
        ("r", "6"),
    ]


def test_an_entrys_line_is_where_it_begins() -> None:
    text = "\n# x\na=1,\\\n 2\nb=3"
    assert [(line, key) for line, key, _ in read_properties(text)] == [(3, "a"), (5, "b")]


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    for _, key, value in read_properties(text):
        assert isinstance(key + value, str)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n\nnum.partitions=many\n", "{path}:3: num.partitions=many: expected a whole number"),
        ("num.partitons=3\n", "{path}:1: num.partitons: no such broker setting; did you mean"),
    ],
)
def test_a_mistake_in_properties_is_named_with_file_and_line(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "x.properties"
    path.write_text(content)
    with pytest.raises(SettingError) as caught:
        load_properties(path)
    assert str(caught.value).startswith(message.format(path=path))


def test_toml_may_use_dotted_names_tables_and_its_own_types(tmp_path: Path) -> None:
    path = tmp_path / "headrace.toml"
    path.write_text(
        'log.dirs = ["a", "b"]\n'
        "num.partitions = 3\n"
        '"auto.create.topics.enable" = false\n'
        "[log.retention]\n"
        "ms = 5\n"
        "[log.cleaner]\n"
        "min.cleanable.ratio = 0.25\n"
    )
    assert load_toml(path) == {
        "log.dirs": "a,b",
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "5",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n[log.retention]\nms = 'x'\n", "{path}:3: log.retention.ms=x: expected"),
        ("num.partition = 1\n", "{path}:1: num.partition: no such broker setting; did you mean"),
        ("num.partitions = [[1]]\n", "{path}:1: num.partitions: expected text"),
        ("num.partitions = \n", "{path}: Invalid value (at line 1"),
    ],
)
def test_a_mistake_in_toml_is_named_with_file_and_line(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(SettingError) as caught:
        load_toml(path)
    assert str(caught.value).startswith(message.format(path=path))


@pytest.mark.parametrize("load", [load_properties, load_toml])
def test_a_missing_file_is_named(tmp_path: Path, load: Callable[[Path], dict[str, str]]) -> None:
    with pytest.raises(SettingError, match=r"nowhere: no such file"):
        load(tmp_path / "nowhere")


def test_an_assignment_is_checked() -> None:
    assert parse_assignment("log.dirs = a=b") == ("log.dirs", "a=b")
    for text, match in [
        ("num.partitions", "expected name=value"),
        ("=3", "expected name=value"),
        ("num.partitions=x", "expected a whole number"),
        ("num.parts=3", "no such broker setting"),
    ]:
        with pytest.raises(SettingError, match=match):
            parse_assignment(text)
