"""Spark's own pipelines command, with the session set up: what `headrace spark pipelines` becomes.

Spark's `spark-pipelines` script refuses `--master`, because its session is always one of Spark
Connect. Started from Python in connect mode, PySpark starts the Connect server by itself on
whatever master there is, with the settings that are set up for any of our programs.
"""

import os
import sys


def main(words: list[str]) -> int:
    """Run `spark-pipelines` with these words; the exit code."""
    from pyspark.errors import PySparkException
    from pyspark.pipelines import cli

    from headrace.pipelines.running.driver import watched

    os.environ["SPARK_API_MODE"] = "connect"
    sys.argv = ["spark-pipelines", *words]
    try:
        return watched(cli.main)
    except PySparkException as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
