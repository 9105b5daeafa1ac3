"""The examples share the local Spark of the pipelines' tests."""

from tests.pipelines.conftest import _needs_java, spark

__all__ = ["_needs_java", "spark"]
