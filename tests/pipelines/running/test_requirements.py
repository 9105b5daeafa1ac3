"""On a machine that cannot run Spark, the error says what to install."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from headrace.pipelines.running import requirements
from headrace.pipelines.running.requirements import NotReady


def java_that_prints(folder: Path, text: str) -> dict[str, str]:
    """An environment whose only Java says this about itself."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("java: command not found", None),
    ],
)
def test_the_release_is_parsed_from_the_output_of_java(text: str, version: int | None) -> None:
    assert requirements.java_version(text) == version


def test_a_java_that_is_new_enough_passes(tmp_path: Path) -> None:
    requirements.check_java(java_that_prints(tmp_path, 'openjdk version "21.0.2" 2024-01-16'))


def test_an_old_java_is_named_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as caught:
        requirements.check_java(java_that_prints(tmp_path, 'openjdk version "11.0.20"'))
    assert "Java 11" in caught.value.message
    assert str(tmp_path / "bin" / "java") in caught.value.message
    assert "Java 17 or 21" in caught.value.hint
    assert "openjdk-17-jre-headless" in caught.value.hint


def test_no_java_at_all_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"No Java was found.*Java 17 or 21"):
        requirements.check_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=f"JAVA_HOME is {tmp_path}"):
        requirements.check_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


def test_something_else_called_java_is_no_java(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="does not report its Java version"):
        requirements.check_java(java_that_prints(tmp_path, "hello"))


def test_a_missing_pyspark_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(NotReady, match=r"pip install 'headrace\[spark\]'"):
        requirements.check_pyspark()


def test_a_pyspark_without_our_data_source_api_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.1.3")
    with pytest.raises(NotReady, match=r"4\.1\.3 is too old; 4\.2 or newer"):
        requirements.check_pyspark()


@pytest.mark.parametrize("other", ["3.5.1", "4.99.0-SNAPSHOT"])
def test_a_spark_home_of_another_version_is_named_with_both_versions(
    tmp_path: Path, other: str
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{other}.jar").touch()
    with pytest.raises(NotReady, match="SPARK_HOME") as raised:
        requirements.check_spark_home({"SPARK_HOME": str(tmp_path)})
    assert f"is Spark {other}, but PySpark here is" in raised.value.message
    assert f"pyspark=={other}" in raised.value.hint


def test_the_spark_that_came_with_pyspark_may_be_spark_home() -> None:
    found = importlib.util.find_spec("pyspark")
    assert found
    assert found.origin
    home = Path(found.origin).parent
    assert list(home.glob("jars/spark-core_*.jar"))
    requirements.check_spark_home({"SPARK_HOME": str(home)})
    requirements.check_spark_home({})
