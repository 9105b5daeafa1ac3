"""Spark programs as `headrace spark` starts them: what is set up, and how they are watched."""
