"""What several tests and the benchmarks share: real brokers, Java tools, free ports."""
