"""`headrace groups` when the coordinator has just moved: it asks again, and does not crash."""

import json
import subprocess
import sys
import threading

from confluent_kafka import Consumer, TopicPartition

from headrace.testing.plugin import BrokerFactory
from tests.support.proxy import Caught, FrameProxy
from tests.support.topics import create_topic

OFFSET_FETCH = 9
NOT_COORDINATOR = (16).to_bytes(2, "big")


def refuse(answer: Caught) -> None:
    """The error of the only group, before the two empty lists of tagged fields."""
    answer.wait()
    answer.change(answer.frame[:-4] + NOT_COORDINATOR + answer.frame[-2:])


def test_offsets_are_asked_for_again_when_the_coordinator_has_moved(
    headrace_factory: BrokerFactory,
) -> None:
    with FrameProxy() as proxy:
        broker = headrace_factory({"advertised.listeners": proxy.listener})
        proxy.broker_port = int(broker.bootstrap_servers.rpartition(":")[2])
        servers = proxy.bootstrap_servers
        create_topic(servers, "orders", 1)
        one = Consumer({"bootstrap.servers": servers, "group.id": "audit"})
        one.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        one.close()
        moved = proxy.catch(OFFSET_FETCH, answers=True)
        refusing = threading.Thread(target=refuse, args=(moved,))
        refusing.start()
        command = [sys.executable, "-m", "headrace.cli", "groups", "describe", "audit", "--json"]
        done = subprocess.run(
            [*command, "--bootstrap", servers],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        refusing.join()
        assert (done.returncode, done.stderr) == (0, "")
        (row,) = json.loads(done.stdout)["partitions"]
        assert (row["topic"], row["committed"], row["lag"]) == ("orders", 0, 0)
