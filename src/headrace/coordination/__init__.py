"""Coordinators of groups and transactions: pure state machines, and the runtime that runs them."""
