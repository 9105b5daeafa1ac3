"""The judge of every promise about records: histories of real clients, rules that none may break.

`history.py` says what an event is, `values.py`, `order.py` and `cycles.py` are the twelve rules,
`verdict.py` applies them. `workload.py` records histories with clients in processes of their own.
"""
