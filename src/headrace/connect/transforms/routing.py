"""Transforms of the topic."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.connect.transforms.change import Change, RecordView, fail
from headrace.connect.transforms.predicates import whole_match

_TOPIC, _TIMESTAMP = "${topic}", "${timestamp}"


def regex_router(records: RecordView) -> Change:
    regex, replacement = records.options.text("regex"), records.options.text("replacement")
    return Change({"topic": routed(F.col("topic"), regex, replacement)})


def routed(topic: Column, regex: str, replacement: str) -> Column:
    """The topic with its first match replaced, if the whole topic matches."""
    # A whole match begins at the start, so the first match does, too.
    replaced = F.regexp_replace(topic, F.lit(rf"\A(?:{regex})"), F.lit(replacement))
    return F.when(whole_match(topic, regex), replaced).otherwise(topic)


def timestamp_router(records: RecordView) -> Change:
    form = records.options.text("topic.format")
    moment = F.date_format("timestamp", records.options.text("timestamp.format"))
    pieces: list[Column] = []
    for place, piece in enumerate(form.split(_TOPIC)):
        if place:
            pieces.append(F.col("topic"))
        for inner_place, text in enumerate(piece.split(_TIMESTAMP)):
            if inner_place:
                pieces.append(moment)
            pieces.append(F.lit(text))
    missing = fail(F.col("timestamp").isNull(), "Timestamp missing on record")
    return Change({"topic": F.concat(*pieces)}, failures=[missing])
