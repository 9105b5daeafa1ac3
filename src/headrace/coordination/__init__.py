"""Group coordination: pure state machines, and the runtime that feeds them from the log."""
