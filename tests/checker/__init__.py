"""The checker of guarantees about records: rules for histories of real clients.

`history.py` defines events, `values.py`, `order.py` and `cycles.py` have the twelve rules,
`verdict.py` applies them. `workload.py` records histories with clients in separate processes.
"""
