"""The permission to write to a partition in a transaction."""


class VerificationGuard:
    """A producer's permission to open a transaction in one partition, until the next marker comes.

    It is created before the coordinator is asked, so that a marker that arrives before the
    coordinator's answer invalidates it: otherwise a late batch would open a transaction that never
    ends (a hanging transaction).
    """

    __slots__ = ("__weakref__", "needed")

    def __init__(self, needed: bool) -> None:
        self.needed = needed
        """Whether the coordinator must be asked; false if the transaction is open already."""
