"""Names for the values that every layer passes around."""

import base64
import uuid
from enum import IntEnum
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


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConfigResourceType(IntEnum):
    """What has configs, by the numbers on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def encode_uuid(value: uuid.UUID) -> str:
    """A topic id as Kafka writes it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """The topic id that `encode_uuid` wrote; ValueError if it is none."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
