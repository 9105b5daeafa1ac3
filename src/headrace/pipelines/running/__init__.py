"""Spark programs under `headrace spark`: configuration, start, restarts, progress."""
