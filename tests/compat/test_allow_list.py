"""The comparison with a list of what must pass notices both kinds of difference."""

from pathlib import Path

from tests.compat.allow_list import complaints, read_allowed, read_junit

RESULTS = """\
<testsuites><testsuite>
  <testcase classname="test.integration.test_admin" name="test_a[None]" time="0.1"/>
  <testcase classname="test.integration.test_admin" name="test_b">
    <failure message="assert 1 == 2&#10;more">a traceback</failure>
  </testcase>
  <testcase classname="test.integration.test_admin" name="test_c">
    <skipped type="pytest.skip" message="too old"/>
  </testcase>
</testsuite></testsuites>
"""


def test_the_results_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    assert read_junit(tmp_path / "results.xml") == {
        "test_admin::test_a[None]": "passed",
        "test_admin::test_b": "failure: assert 1 == 2",
        "test_admin::test_c": "skipped: too old",
    }


def test_the_list_is_read_without_its_comments(tmp_path: Path) -> None:
    (tmp_path / "tests.allow").write_text("# why\n\na::b\n  a::c[x]\n")
    assert read_allowed(tmp_path / "tests.allow") == ["a::b", "a::c[x]"]


def test_a_listed_test_must_pass_and_a_passing_test_must_be_listed() -> None:
    results = {"a": "passed", "b": "failure: no", "c": "skipped: old", "d": "failure: no"}
    assert complaints(["a"], results) == []
    assert [line.split()[0] for line in complaints(["a", "b", "c", "gone"], results)] == [
        "b",
        "c",
        "gone",
    ]
    assert "add it to the list" in complaints([], results)[0]
