"""One partition on one disk: synchronous, no network."""
