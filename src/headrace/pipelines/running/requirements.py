"""Checks the requirements of Spark: PySpark, a matching Spark, Java. Imports none of them."""

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

OLDEST_JAVA = 17
OLDEST_PYSPARK = (4, 2)
INSTALL_JAVA = (
    "Spark 4 needs Java 17 or 21. On Debian or Ubuntu: sudo apt-get install "
    "openjdk-17-jre-headless; on a Mac: brew install openjdk@17. "
    "Set JAVA_HOME if there are several."
)
INSTALL_SPARK = "Install it with: pip install 'headrace[spark]'"


class NotReady(Exception):
    """Spark cannot start on this machine. The message says why and what to install."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}. {hint}")
        self.message = message
        self.hint = hint


def check_spark(environment: Mapping[str, str]) -> None:
    """Raises NotReady unless PySpark, its Spark and a suitable Java are installed."""
    check_pyspark()
    check_spark_home(environment)
    check_java(environment)


def check_pyspark() -> None:
    """Raises NotReady unless a PySpark with the needed data source API is installed."""
    try:
        found = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise NotReady("PySpark is not installed in this Python", INSTALL_SPARK) from None
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < OLDEST_PYSPARK:
        oldest = ".".join(map(str, OLDEST_PYSPARK))
        raise NotReady(f"PySpark {found} is too old; {oldest} or newer is needed", INSTALL_SPARK)


def check_spark_home(environment: Mapping[str, str]) -> None:
    """Raises NotReady if SPARK_HOME is a Spark of another version than PySpark."""
    home = environment.get("SPARK_HOME")
    if not home:
        return
    installed = importlib.metadata.version("pyspark")
    for jar in Path(home, "jars").glob("spark-core_*.jar"):
        found = jar.stem.rpartition("_")[2].partition("-")[2]
        if found != installed:
            raise NotReady(
                f"SPARK_HOME is {home}, which is Spark {found}, but PySpark here is {installed}",
                "Unset SPARK_HOME to use the Spark that came with PySpark, or install "
                f"pyspark=={found}",
            )


def check_java(environment: Mapping[str, str]) -> None:
    """Raises NotReady unless the Java that Spark would use exists and is new enough."""
    program = java_program(environment)
    if program is None:
        raise no_java(environment)
    try:
        done = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        raise NotReady(f"{program} cannot be started: {error.strerror}", INSTALL_JAVA) from None
    version = java_version(done.stderr + done.stdout)
    if version is None:
        raise NotReady(f"{program} does not report its Java version", INSTALL_JAVA)
    if version < OLDEST_JAVA:
        raise NotReady(f"{program} is Java {version}", INSTALL_JAVA)


def no_java(environment: Mapping[str, str]) -> NotReady:
    """The error without Java, with installation hints."""
    home = environment.get("JAVA_HOME")
    where = f"JAVA_HOME is {home}, which has no bin/java" if home else "No Java was found"
    return NotReady(where, INSTALL_JAVA)


def java_program(environment: Mapping[str, str]) -> Path | None:
    """The `java` that Spark's own scripts would start: JAVA_HOME's, else the first on the PATH."""
    if home := environment.get("JAVA_HOME"):
        named = Path(home) / "bin" / "java"
        return named if named.is_file() else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def java_version(text: str) -> int | None:
    """The feature release in the output of `java -version`: 17 in "17.0.15", 8 in "1.8.0_392"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
