"""Three Apache Kafka nodes (KRaft, each broker and controller), to compare a cluster with."""

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port


class ApacheKafkaCluster:
    """Nodes 1 to 3, replicated three times by default."""

    def __init__(self, folder: Path, *, heap_mb: int = 512) -> None:
        controllers = [free_port() for _ in range(3)]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        self.nodes: dict[int, ApacheKafka] = {}
        for node, controller in enumerate(controllers, 1):
            port = free_port()
            where = f"127.0.0.1:{port}"
            self.nodes[node] = ApacheKafka(
                folder / f"node-{node}",
                heap_mb=heap_mb,
                port=port,
                voters=voters,
                settings={
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://{where},CONTROLLER://127.0.0.1:{controller}",
                    "offsets.topic.replication.factor": "3",
                    "transaction.state.log.replication.factor": "3",
                    "transaction.state.log.min.isr": "2",
                },
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.kill()
