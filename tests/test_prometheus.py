"""The histogram and the text format of Prometheus."""

from headrace.prometheus import Histogram, head, label_text, line


def test_a_histogram_counts_each_value_in_its_bucket_and_all_above() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    assert list(histogram.lines("x_seconds", 'api="Fetch"')) == [
        'x_seconds_bucket{api="Fetch",le="0.1"} 2',
        'x_seconds_bucket{api="Fetch",le="1.0"} 3',
        'x_seconds_bucket{api="Fetch",le="+Inf"} 4',
        'x_seconds_sum{api="Fetch"} 7.65',
        'x_seconds_count{api="Fetch"} 4',
    ]
    assert histogram.count == 4


def test_a_histogram_without_labels_has_only_its_bounds() -> None:
    assert list(Histogram((1.0,)).lines("x", "")) == [
        'x_bucket{le="1.0"} 0',
        'x_bucket{le="+Inf"} 0',
        "x_sum 0.0",
        "x_count 0",
    ]


def test_labels_and_docs_are_escaped() -> None:
    assert label_text(("a", "b"), ('odd "name"\n\\', "")) == 'a="odd \\"name\\"\\n\\\\",b=""'
    assert line("x", 'a="1"', 2) == 'x{a="1"} 2'
    assert line("x", "", 2.5) == "x 2.5"
    assert head("x", "gauge", "a\\b\nc") == ["# HELP x a\\\\b\\nc", "# TYPE x gauge"]
