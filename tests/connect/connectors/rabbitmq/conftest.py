"""Each test has a queue of its own."""

import pytest

from tests.connect.connectors.rabbitmq.queues import Queue
from tests.support.message_brokers import RabbitMqServer


@pytest.fixture
def queue(rabbitmq_server: RabbitMqServer) -> Queue:
    return Queue(rabbitmq_server)
