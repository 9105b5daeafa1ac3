"""Exactly once: the result and the offset are written in one database transaction.

Either both are there after a crash or neither, so the worker goes on exactly behind its results.
No ids are needed, and sums and counters come out right. The broker keeps no offset for this group.
"""

from confluent_kafka import Consumer, TopicPartition
from workshop import Shop, run


def worker(shop: Shop) -> None:
    database = shop.database()
    # No key keeps a repeated order out of this table: it must not be needed.
    database.execute("CREATE TABLE IF NOT EXISTS payments (order_id INTEGER)")
    database.execute(
        "CREATE TABLE IF NOT EXISTS positions (part INTEGER PRIMARY KEY, next INTEGER)"
    )

    def go_on(consumer: Consumer, assigned: list[TopicPartition]) -> None:
        """Begin where the database ends, not where the group's offsets may be."""
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
