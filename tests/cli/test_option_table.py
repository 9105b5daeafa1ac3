"""Options of commands that start a process."""

import pytest

from headrace.cli.failures import Failure
from headrace.cli.option_table import CommandOption, GivenOptions, parse_options

OPTIONS = (
    CommandOption("--listen", "HOST:PORT", "", short="-l", env="LISTEN", default="here:1"),
    CommandOption("--set", "NAME=VALUE", "", repeatable=True),
    CommandOption("--read-only", "", ""),
    CommandOption("--log-level", "LEVEL", "", default="info", choices=("info", "error")),
)


def _parsed(*words: str, **env: str) -> GivenOptions:
    return parse_options(("registry", "serve"), OPTIONS, words, env)


def test_the_command_line_wins_over_the_environment_and_that_over_the_table() -> None:
    assert _parsed().one("--listen") == "here:1"
    assert _parsed(LISTEN="env:2").one("--listen") == "env:2"
    assert _parsed("-l", "short:3", LISTEN="env:2").one("--listen") == "short:3"
    assert _parsed("--listen=first:1", "--listen", "last:2").one("--listen") == "last:2"


def test_switches_have_no_value_and_repeated_options_have_several() -> None:
    given = _parsed("--set", "a=1", "--read-only", "--set=b=2")
    assert given.switched("--read-only")
    assert given.all("--set") == ["a=1", "b=2"]
    assert not _parsed().switched("--read-only")
    assert _parsed().all("--set") == []


def test_choices_are_accepted_in_any_case() -> None:
    assert _parsed("--log-level", "ERROR").one("--log-level") == "error"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--read-onyl"], "did you mean --read-only"),
        (["--read-only=yes"], "--read-only has no value"),
        (["--listen"], "--listen needs a value, HOST:PORT"),
        (["--log-level", "loud"], "'loud' is not one of info, error"),
        (["word"], "unknown option 'word'"),
    ],
)
def test_words_that_do_not_fit_the_table_are_errors(words: list[str], told: str) -> None:
    with pytest.raises(Failure) as refused:
        _parsed(*words)
    assert told in refused.value.message
    assert refused.value.exit_code == 2


def test_an_error_names_the_help_page_of_the_command() -> None:
    with pytest.raises(Failure) as refused:
        _parsed("--unknown")
    assert "`headrace registry serve --help`" in refused.value.hint
