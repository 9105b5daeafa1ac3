"""`python -m headrace.cli`, the same as `headrace`."""

from headrace.cli.main import run

run()
