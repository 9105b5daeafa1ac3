"""Benchmarks of continuous SQL."""
