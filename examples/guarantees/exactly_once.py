"""Exactly once: the result and the offset are written in one database transaction.

After a crash either both exist or neither, so the worker continues exactly after its results.
No ids are needed, and sums and counters are correct. The broker has no offset of this group.
"""

from confluent_kafka import Consumer, TopicPartition
from workshop import Shop, run


def worker(shop: Shop) -> None:
    database = shop.database()
    # This table has no key that would refuse a repeated order, because none is needed.
    database.execute("CREATE TABLE IF NOT EXISTS payments (order_id INTEGER)")
    database.execute(
        "CREATE TABLE IF NOT EXISTS positions (part INTEGER PRIMARY KEY, next INTEGER)"
    )

    def go_on(consumer: Consumer, assigned: list[TopicPartition]) -> None:
        """Begin at the position in the database, not at the group's offsets."""
        saved = dict(database.execute("SELECT part, next FROM positions"))
        for each in assigned:
            each.offset = saved.get(each.partition, 0)
        consumer.assign(assigned)

    consumer = shop.consumer()
    consumer.subscribe([shop.topic], on_assign=go_on)
    for batch in shop.batches(consumer):
        with database:
            for message in batch:
                order = shop.receive(message)
                database.execute("INSERT INTO payments VALUES (?)", (order,))
                position = (message.partition(), message.offset() + 1)
                database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", position)
    consumer.close()


def payments_made(shop: Shop) -> list[int]:
    return [order for (order,) in shop.database().execute("SELECT order_id FROM payments")]


if __name__ == "__main__":
    run("exactly once: work and offset in one transaction", worker, payments_made)
