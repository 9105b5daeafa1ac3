"""What has to be set before PySpark starts its Java: which Python Spark's own processes use.

Spark's Java starts `python3` from the PATH for data sources and tasks. If a program is started with
the Python of an environment that is not activated, that is another Python, which does not have this
package, and Spark ends with DATA_SOURCE_NOT_FOUND. The module `pyspark_headrace` is imported too
late to change that: Spark looks for it with the wrong Python. So `headrace-pyspark.pth`, which is
installed beside the package, imports this module whenever Python starts. It does nothing until the
program imports PySpark, and never changes what the user has chosen. No other module imports it.
"""

import os
import sys

# Every Python of the environment imports this module, so that it imports nothing that Python has
# not loaded by then: neither typing nor collections.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

CHOSEN_BY_USER = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
JAVA_RUNS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""Set where somebody else has started Spark's Java: spark-submit, or a Connect server."""
CHILD_OF_SPARK = "SPARK_ENV_LOADED"


class _PySparkFinder:
    """Finds no module; learns that PySpark is imported for the first time."""

    def find_spec(
        self, name: str, path: object = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name == "pyspark" and self in sys.meta_path:
            sys.meta_path.remove(self)
            prepare(os.environ)
        return None


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
