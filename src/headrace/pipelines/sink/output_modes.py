"""Output modes that the sinks do not support, and the alternatives.

Spark refuses `update` before it calls a Python sink, so that only the listener of
`headrace spark run` can explain it; `complete` is passed to the sink as an overwrite.
"""

import re

OVERWRITE_REFUSED = 'a topic can only be appended to: use .mode("append")'

_UPDATE_REFUSED = re.compile(r"\b(headrace[\w-]*) does not support Update mode")


def batch_per_epoch(format_: str) -> str:
    """How to write changing results with a sink of this format."""
    if format_ == "headrace":
        return (
            'Write each epoch as a batch: .outputMode("update").foreachBatch(write_epochs("TOPIC"))'
            " with `from headrace.pipelines import write_epochs` is exactly once; see "
            "docs/spark-sinks.md, results that change"
        )
    return (
        'Write each epoch as a batch: .outputMode("update").foreachBatch(lambda rows, epoch: '
        f'rows.write.format("{format_}").options(...).mode("append").save()). An epoch that Spark '
        "runs again is then written again (at least once)"
    )


COMPLETE_REFUSED = (
    'outputMode("complete") replaces all rows of the sink at every epoch, and a topic can only be '
    f"appended to. {batch_per_epoch('headrace')}"
)


def explained(error: str) -> str:
    """A query's error, with the alternative after its first line if Spark refused `update`."""
    refused = _UPDATE_REFUSED.search(error)
    if refused is None:
        return error
    line, newline, rest = error.strip().partition("\n")
    return f"{line} {batch_per_epoch(refused[1])}{newline}{rest}"
