"""The permission to write to a partition in a transaction."""


class VerificationGuard:
    """A producer's permission to open a transaction in one partition, until the next marker comes.

    It is asked for before the coordinator is, so that a marker that overtakes the coordinator's
    answer makes it void: otherwise a late batch would open a transaction that nobody ends.
    """

    __slots__ = ("__weakref__", "needed")

    def __init__(self, needed: bool) -> None:
        self.needed = needed
        """Whether the coordinator has to be asked; not if the transaction is open already."""
