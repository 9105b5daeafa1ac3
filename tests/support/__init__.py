"""Common parts of tests and benchmarks: real brokers, Java tools, free ports."""
