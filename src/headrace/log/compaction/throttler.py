"""The rate limit of compaction: `log.cleaner.io.max.bytes.per.second`."""

import time


class Throttler:
    """Sleeps if more bytes were read or written than the rate allows."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._began = time.monotonic()
        self._spent = 0

    def spend(self, count: int) -> None:
        """Count bytes that were read or written, and wait until the rate allows them."""
        self._spent += count
        early_s = self._spent / self._bytes_per_second - (time.monotonic() - self._began)
        if early_s > 0:
            time.sleep(early_s)
