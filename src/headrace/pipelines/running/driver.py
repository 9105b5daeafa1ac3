"""The process in which a program runs: `python -m headrace.pipelines.running.driver app.py ...`.

`headrace spark` replaces itself with this process. PySpark starts its Java as a child process,
which ends when this process ends. The program is run as Python would run it, with listeners on its
sessions.
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from headrace.pipelines.running.restarts import RestartedProgram, Restarts

ENDS_WITHIN_S = 10


def main(words: list[str]) -> int:
    """Run a program with its arguments; the exit code."""
    from headrace.pipelines.replay_bounds import present_version, refuse_own_checkpoints
    from headrace.pipelines.running.restarts import RestartedProgram
    from headrace.pipelines.running.starts import Starts

    starts = Starts()
    life = RestartedProgram(starts, os.environ)
    if present_version() is not None:
        refuse_own_checkpoints()
    starts.watch()
    program, *_ = words
    sys.argv = words
    # Python's first search path is the folder of the program.
    sys.path[0] = str(Path(program).resolve().parent)
    return watched(lambda: runpy.run_path(program, run_name="__main__"), life)


def watched(run: Callable[[], Any], life: "RestartedProgram | None" = None) -> int:
    """Run with a listener on every session, and stop its queries at the end.

    With `life` the program is run again after an environmental failure.
    """
    from headrace.pipelines.running.listener import watch_sessions
    from headrace.pipelines.running.partition_columns import hand_on_partition_columns

    signal.signal(signal.SIGTERM, _terminated)
    listeners = watch_sessions()
    hand_on_partition_columns()
    following: Restarts | None = None
    try:
        run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        following = None if life is None else life.next_life(error)
        if following is None:
            raise
    finally:
        # The main thread's connection to Java may be blocked in a call that a signal interrupted,
        # such as awaitTermination; another thread has its own connection.
        stopping = threading.Thread(target=_stop_queries, daemon=True)
        stopping.start()
        stopping.join(ENDS_WITHIN_S)
        for listener in listeners:
            listener.wait_for_ends(ENDS_WITHIN_S)
    if life is not None and following is not None:
        life.run_again(following)
    return 0


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _stop_queries() -> None:
    """Stop running queries, so that their end is published; checkpoints are not affected."""
    from pyspark.sql import SparkSession

    spark = SparkSession._instantiatedSession
    # A stopped session has no Java context.
    if spark is None or spark.sparkContext._jsc is None:
        return
    active = spark.streams.active
    if active:
        # Interrupted batches log long errors, which are expected here.
        spark.sparkContext.setLogLevel("OFF")
    for query in active:
        query.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
