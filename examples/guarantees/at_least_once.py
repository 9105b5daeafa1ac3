"""At least once: the offset is committed after the work, so a crash repeats work, never loses it.

The usual choice: suitable if doing something twice has no effect, or is detected later.
"""

from workshop import Shop, run


def worker(shop: Shop) -> None:
    consumer = shop.consumer()
    consumer.subscribe([shop.topic])
    for batch in shop.batches(consumer):
        for message in batch:
            order = shop.receive(message)
            shop.append("mails.txt", order)
        # After a crash before this line the whole batch is delivered again.
        consumer.commit(message=batch[-1], asynchronous=False)
    consumer.close()


def mails_sent(shop: Shop) -> list[int]:
    return shop.lines("mails.txt")


if __name__ == "__main__":
    run("at least once: work, then commit", worker, mails_sent)
