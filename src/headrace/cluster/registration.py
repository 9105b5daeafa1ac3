"""The registration of this broker as a live broker, and as the controller.

Both are nodes that the store removes when the session of this broker ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.cluster.image import Broker, Image, Topic
from headrace.cluster.metadata import Metadata, MetadataChange
from headrace.cluster.metadata_nodes import CONTROLLER, LIVE_CONTROLLER
from headrace.cluster.store import LIVE, Change, Conflict
from headrace.errors import SettingError


def _no_topics(_image: Image) -> list[Topic]:
    return []


class Registration:
    """Registers this broker in the metadata."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._nodes = metadata.nodes

    def join(
        self, broker: Broker, folder: str, others: Callable[[Image], list[Topic]] = _no_topics
    ) -> Broker:
        """Register this broker until its session ends; returns the registration with its epoch.

        `others` are the topics that the registration changes, decided on the image. `folder` names
        its data: an existing registration is replaced if it has the same data, because this process
        holds the lock of that data.
        """
        registered = broker

        def decide(image: Image) -> MetadataChange[None]:
            nonlocal registered
            path = f"/brokers/{broker.id}"
            known = self._nodes.get(path)
            registered = replace(broker, epoch=(known or {}).get("epoch", 0) + 1)
            topics = others(image)
            changes = [
                self._nodes.put(path, {"epoch": registered.epoch}),
                *self._remove_earlier(broker, folder),
                self._nodes.create_live(f"{LIVE}/{broker.id}", _content(registered, folder)),
                *map(self._nodes.put_topic, topics),
            ]
            after = image.with_topics(topics).with_broker(registered)
            if self._nodes.get(LIVE_CONTROLLER) is None:
                changes += self._claim_control()
                after = replace(after, controller_id=broker.id)
            return MetadataChange([], after, changes)

        self._metadata.change(decide)
        return registered

    def _remove_earlier(self, broker: Broker, folder: str) -> list[Change]:
        """Removes an earlier registration; SettingError if another broker uses the id."""
        path = f"{LIVE}/{broker.id}"
        other = self._nodes.get(path)
        if other is not None and other["folder"] != folder:
            raise SettingError(
                f"node.id={broker.id} is taken: the broker at {other['host']}:{other['port']} has "
                "it and is running. Give this one another --node-id and a data folder of its own."
            )
        return self._nodes.delete(path)

    def become_controller(self) -> bool:
        """Whether this broker is the controller now; at most one is, until its session ends."""
        node_id = self._metadata.node_id
        after = replace(self._metadata.image, controller_id=node_id)
        try:
            self._metadata.commit(MetadataChange([], after, self._claim_control()))
        except Conflict:
            self._metadata.refresh()
        return self._metadata.image.controller_id == node_id

    def _claim_control(self) -> list[Change]:
        epoch = (self._nodes.get(CONTROLLER) or {}).get("epoch", 0) + 1
        content = {"broker": self._metadata.node_id, "epoch": epoch}
        return [
            self._nodes.create_live(LIVE_CONTROLLER, content),
            self._nodes.put(CONTROLLER, {"epoch": epoch}),
        ]


def _content(broker: Broker, folder: str) -> Mapping[str, object]:
    return {
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "epoch": broker.epoch,
        "folder": folder,
        "endpoints": broker.endpoints,
    }
