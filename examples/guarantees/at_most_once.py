"""At most once: the offset is committed before the work, so a crash loses work, never repeats it.

Suitable if a lost record is cheaper than a repeated one: samples, live positions, reminders.
"""

from workshop import Shop, run


def worker(shop: Shop) -> None:
    consumer = shop.consumer()
    consumer.subscribe([shop.topic])
    for batch in shop.batches(consumer):
        # From here on the batch is committed, whether it is processed or not.
        consumer.commit(message=batch[-1], asynchronous=False)
        for message in batch:
            order = shop.receive(message)
            shop.append("mails.txt", order)
    consumer.close()


def mails_sent(shop: Shop) -> list[int]:
    return shop.lines("mails.txt")


if __name__ == "__main__":
    run("at most once: commit, then work", worker, mails_sent)
