"""The Spark sink."""
