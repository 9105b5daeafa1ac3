"""Replaces methods of classes temporarily, to plant deliberate bugs."""

_originals: list[tuple[type, str, object]] = []


def swap(owner: type, name: str, method: object) -> None:
    """Let `method` stand where a class has its own."""
    assert name in vars(owner), f"{owner.__name__} has no {name} to spoil"
    _originals.append((owner, name, vars(owner)[name]))
    setattr(owner, name, method)


def restore() -> None:
    """Everything as it was."""
    while _originals:
        owner, name, method = _originals.pop()
        setattr(owner, name, method)
