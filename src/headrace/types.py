"""Names for the values that every layer passes around."""

from typing import NamedTuple, TypeAlias

Offset: TypeAlias = int
Epoch: TypeAlias = int
BrokerId: TypeAlias = int


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
