"""What has to be done when a program imports PySpark: which Python Spark uses, and `partitionBy`.

Spark's Java starts `python3` from the PATH for data sources and tasks. If a program is started with
the Python of an environment that is not activated, that is another Python, which does not have this
package, and Spark ends with DATA_SOURCE_NOT_FOUND. The module `pyspark_headrace` is imported too
late to change that: Spark looks for it with the wrong Python. So `headrace-pyspark.pth`, which is
installed beside the package, imports this module whenever Python starts. It does nothing until the
program imports PySpark, and never changes what the user has chosen. No other module imports it.

The same moment is used to have PySpark's writers tell the lake sinks their partition columns, which
Spark itself does not do (`pipelines/running/partition_columns.py`).
"""

import os
import sys

# Every Python of the environment imports this module, so that it imports nothing that Python has
# not loaded by then: neither typing nor collections.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

CHOSEN_BY_USER = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
JAVA_RUNS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""Set where somebody else has started Spark's Java: spark-submit, or a Connect server."""
CHILD_OF_SPARK = "SPARK_ENV_LOADED"
WRITERS = {
    "pyspark.sql.readwriter": "DataFrameWriter",
    "pyspark.sql.streaming.readwriter": "DataStreamWriter",
}


class _PySparkFinder:
    """Learns that PySpark is imported for the first time, and changes its writers on the way."""

    def __init__(self) -> None:
        self._awaited = {"pyspark", *WRITERS}

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name not in self._awaited:
            return None
        self._awaited.remove(name)
        if not self._awaited and self in sys.meta_path:
            sys.meta_path.remove(self)
        if name == "pyspark":
            prepare(os.environ)
            return None
        return _with_changed_writer(name, path)


def _with_changed_writer(name: str, path: "Sequence[str] | None") -> "ModuleSpec | None":
    """The module as Python itself finds it, with its writer changed once it is loaded."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return None
    execute = spec.loader.exec_module

    def exec_module(module: "ModuleType") -> None:
        execute(module)
        try:
            from headrace.pipelines.running.partition_columns import change

            change(getattr(module, WRITERS[name]))
        except Exception as error:
            import warnings

            # PySpark works without it, and the sinks have an option for the columns.
            warnings.warn(f"partitionBy will not reach the lake sinks: {error}", stacklevel=2)

    # PySpark's modules have loaders of their own, so that no other module is concerned.
    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def prepare(environment: "MutableMapping[str, str]") -> None:
    """Let Spark use this Python, unless the user has chosen one; warn if there is no Java."""
    if any(name in environment for name in JAVA_RUNS):
        return
    if not any(name in environment for name in CHOSEN_BY_USER) and not _is_on_path(environment):
        environment["PYSPARK_PYTHON"] = sys.executable
    _warn_without_java(environment)


def _is_on_path(environment: "MutableMapping[str, str]") -> bool:
    """Whether `python3` is this Python. An environment's Python may be a link to another one's, so
    that the folder decides and not the file."""
    import shutil

    found = shutil.which("python3", path=environment.get("PATH"))
    return found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)


def _warn_without_java(environment: "MutableMapping[str, str]") -> None:
    from headrace.pipelines.running import requirements

    if requirements.java_program(environment) is None:
        import warnings

        missing = requirements.no_java(environment)
        # The place that is shown is the program's import of PySpark.
        warnings.warn(str(missing), RuntimeWarning, stacklevel=4)


if CHILD_OF_SPARK not in os.environ and sys.executable:
    sys.meta_path.insert(0, _PySparkFinder())
