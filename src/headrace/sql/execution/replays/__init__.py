"""Replays: new versions of queries beside the old ones (decision 0068)."""
