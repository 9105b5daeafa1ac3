"""The options of transforms, checked without Spark."""

import subprocess
import sys

import pytest

from headrace.connect.plugin import OptionError
from headrace.connect.transforms import check, class_types, options_of
from headrace.connect.transforms.paths import field_path

APACHE = "org.apache.kafka.connect.transforms."


def errors(**options: str) -> list[str]:
    """The options with errors of one transform; two underscores are a dollar sign."""
    config = {"transforms": "x"}
    config |= {
        f"transforms.x.{name.replace('_', '.')}": value.replace("__", "$")
        for name, value in options.items()
    }
    return [f"{error.option}: {error}" for error in check(config)]


def test_all_sixteen_transforms_and_three_predicates_of_apache_are_known() -> None:
    types = class_types()
    names = {
        name.removeprefix(APACHE).partition("$")[0]
        for name, kind in types.items()
        if APACHE in name and kind == "transformation"
    }
    assert len(names) == 16
    assert list(types.values()).count("predicate") == 3
    assert options_of("org.example.Transform") is None
    found = options_of(APACHE + "Cast$Key")
    assert found is not None
    assert [option.name for option in found] == ["spec", "replace.null.with.default"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"type": APACHE + "Cast"}, "use org.apache.kafka.connect.transforms.Cast$Key"),
        ({"type": "org.example.Transform"}, "there is no such transform"),
        ({}, 'Missing required configuration "transforms.x.type"'),
        ({"type": APACHE + "Cast__Value"}, 'Missing required configuration "spec"'),
        ({"type": APACHE + "Cast__Value", "spec": "a:int33"}, "Invalid type found in casting"),
        ({"type": APACHE + "Cast__Value", "spec": "int8,a:int8"}, "may only specify a single"),
        ({"type": APACHE + "Cast__Value", "spec": "a:b:int8"}, "Invalid rename mapping"),
        ({"type": APACHE + "ReplaceField__Key", "renames": "a"}, "Invalid rename mapping: a"),
        ({"type": APACHE + "InsertField__Key"}, "No field insertion configured"),
        ({"type": APACHE + "InsertField__Key", "static_field": "s"}, "No value specified"),
        ({"type": APACHE + "SetSchemaMetadata__Key"}, "Neither schema name nor version"),
        ({"type": APACHE + "Filter"}, "set one"),
        ({"type": APACHE + "DropHeaders", "headers": "a", "colour": "b"}, "Unknown configuration"),
        ({"type": APACHE + "DropHeaders", "headers": "a", "negate": "true"}, "needs a predicate"),
        ({"type": APACHE + "DropHeaders", "headers": "a", "predicate": "p"}, "not in predicates"),
        ({"type": APACHE + "TimestampConverter__Key", "target_type": "string"}, "requires format"),
        ({"type": APACHE + "TimestampConverter__Key", "target_type": "text"}, "expected one of"),
        (
            {"type": APACHE + "ExtractField__Key", "field": "`a", "field_syntax_version": "V2"},
            "Incomplete backtick pair",
        ),
        (
            {
                "type": APACHE + "HeaderFrom__Key",
                "fields": "a,b",
                "headers": "a",
                "operation": "move",
            },
            "same number of elements",
        ),
    ],
)
def test_an_option_that_cannot_work_is_named(options: dict[str, str], expected: str) -> None:
    (error,) = errors(**options)
    assert expected in error
    assert error.startswith("transforms.x.")


def test_options_that_work_have_no_errors() -> None:
    assert errors(type=APACHE + "Cast__Value", spec="a:int8, b : string") == []
    assert errors(type="headrace.Sql", sql="select 1 as a from record") == []
    assert check({}) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a.b", ["a", "b"]),
        ("a", ["a"]),
        ("`a.b`.c", ["a.b", "c"]),
        ("a.`b.c`", ["a", "b.c"]),
        ("`a`b`", ["a`b"]),
        ("`a\\`.b`.c", ["a`.b", "c"]),
        ("a.", ["a", ""]),
        (".a", ["", "a"]),
    ],
)
def test_paths_have_dots_and_backticks(text: str, path: list[str]) -> None:
    assert field_path("field", text, "V2") == path
    assert field_path("field", text, "V1") == [text]


def test_a_backtick_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(OptionError, match="position 2"):
        field_path("field", "a.`b", "V2")


def test_options_are_checked_without_spark() -> None:
    program = (
        "import sys; import headrace.connect.transforms, headrace.connect.converters; "
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
