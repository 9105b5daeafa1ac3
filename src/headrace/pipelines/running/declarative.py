"""Runs Spark's pipelines command with a configured session, for `headrace spark pipelines`.

Spark's `spark-pipelines` script refuses `--master`, because its session is always one of Spark
Connect. Started from Python in connect mode, PySpark starts the Connect server itself on any
master, with the settings of our programs.
"""

import os
import sys


def main(words: list[str]) -> int:
    """Run `spark-pipelines` with these arguments; the exit code."""
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
