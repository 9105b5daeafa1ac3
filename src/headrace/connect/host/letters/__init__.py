"""Dead letters that wait: looking at them, and running them through their connector again.

`run_state.py` is pure and `runs.py` is the loop of a run; `queue.py` and `chunks.py` use Spark.
"""
