"""How connector classes are found."""

import pytest

from headrace.connect.plugins import Plugins, UnknownPlugin
from tests.connect.stand_in import PLUGINS, FileStreamSinkConnector


@pytest.mark.parametrize(
    "name",
    [
        "tests.connect.stand_in.FileStreamSinkConnector",
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "FileStreamSinkConnector",
        "FileStreamSink",
    ],
)
def test_a_class_has_its_own_name_a_short_one_and_that_of_java(name: str) -> None:
    found = Plugins(PLUGINS).find(name)
    assert (found.kind, found.type) == (FileStreamSinkConnector, "sink")


@pytest.mark.parametrize("name", ["Nope", "com.example.FileStreamSink", ""])
def test_an_unknown_class_is_refused_with_the_list_of_those_that_are_there(name: str) -> None:
    with pytest.raises(UnknownPlugin, match=rf"matches {name}.*FileStreamSinkConnector"):
        Plugins(PLUGINS).find(name)


def test_a_short_name_of_two_classes_is_ambiguous() -> None:
    twice = (*PLUGINS, "tests.connect.other_stand_in:FileStreamSinkConnector")
    with pytest.raises(UnknownPlugin, match="More than one connector"):
        Plugins(twice).find("FileStreamSink")


def test_a_connector_whose_library_is_missing_is_not_offered() -> None:
    found = Plugins((*PLUGINS, "headrace.no_such_module:Thing")).all()
    assert {each.name.rpartition(".")[2] for each in found} >= {"LockedSinkConnector"}
    assert not any("Thing" in each.name for each in found)


def test_the_connectors_of_headrace_are_found_by_the_names_of_java() -> None:
    found = Plugins().find("org.apache.kafka.connect.file.FileStreamSourceConnector")
    assert found.type == "source"
