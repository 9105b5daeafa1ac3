"""Effectively once: delivered at least once, and duplicates are recognised by their id.

Suitable if the result is stored in a place that can refuse a duplicate id: a table with a
primary key, a key-value store, a file named after the record.
"""

from workshop import Shop, run


def worker(shop: Shop) -> None:
    database = shop.database()
    database.execute("CREATE TABLE IF NOT EXISTS invoices (order_id INTEGER PRIMARY KEY)")
    consumer = shop.consumer()
    consumer.subscribe([shop.topic])
    for batch in shop.batches(consumer):
        for message in batch:
            order = shop.receive(message)
            with database:
                # The id comes from the producer; an offset would change if the record were resent.
                database.execute("INSERT OR IGNORE INTO invoices VALUES (?)", (order,))
        consumer.commit(message=batch[-1], asynchronous=False)
    consumer.close()


def invoices_written(shop: Shop) -> list[int]:
    return [order for (order,) in shop.database().execute("SELECT order_id FROM invoices")]


if __name__ == "__main__":
    run("effectively once: work, then commit, known ids ignored", worker, invoices_written)
