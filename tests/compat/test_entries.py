"""The runner of `make compat`: the broker of an entry, its results, and what is reported."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.__main__ import main
from tests.compat.allow_list import read_allowed
from tests.compat.entries import COMPAT, NotAvailable, names, run
from tests.support.java import ROOT

# Passes if the broker at the address has the setting of broker.properties.
ASKS_THE_BROKER = """\
#!/usr/bin/env bash
found=$("$HEADRACE_PYTHON" - "$1" <<'END'
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("made", "record")
producer.flush(60)
print(len(producer.list_topics("made", timeout=60).topics["made"].partitions))
END
)
ending='<failure message="no"/>'
if [[ $found == 5 ]]; then ending=; fi
echo "<testsuite><testcase classname='a' name='b'>$ending</testcase></testsuite>" >"$2"
"""


def entry(folder: Path, script: str, allowed: str) -> Path:
    made = folder / "entries" / "one"
    made.mkdir(parents=True)
    (made / "run.sh").write_text(script)
    (made / "run.sh").chmod(0o755)
    (made / "tests.allow").write_text(allowed)
    (made / "broker.properties").write_text("# why\n\nnum.partitions = 5\n")
    return made


def writes(body: str) -> str:
    return f"#!/usr/bin/env bash\ncat >\"$2\" <<'END'\n<testsuite>{body}</testsuite>\nEND\n"


PASSES = "<testcase classname='a' name='b'/>"
FAILS = "<testcase classname='a' name='b'><failure message='because'/></testcase>"


def test_an_entry_runs_against_a_broker_with_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PYTHON", sys.executable)
    outcome = run(entry(tmp_path, ASKS_THE_BROKER, "a::b\n"), tmp_path, 120)
    assert outcome.complaints == [], outcome.output
    assert outcome.passed == 1


def test_differences_from_the_list_fail_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = entry(tmp_path, writes(FAILS), "a::b\n").parent
    assert main(["one"], entries) == 1
    assert (
        "one: a::b is on the list and must pass, but: failure: because" in capsys.readouterr().out
    )
    (entries / "one" / "run.sh").write_text(writes(PASSES))
    assert main([], entries) == 0
    assert "one: 1 passed" in capsys.readouterr().out


def test_what_cannot_be_fetched_is_reported_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "#!/usr/bin/env bash\necho 'no registry' >&2\nexit 75\n"
    made = entry(tmp_path, script, "a::b\n")
    with pytest.raises(NotAvailable, match="no registry"):
        run(made, tmp_path, 120)
    assert main(["one"], made.parent) == 0
    assert "one: not run: no registry" in capsys.readouterr().out


def test_a_script_that_breaks_is_a_difference(tmp_path: Path) -> None:
    outcome = run(entry(tmp_path, "#!/usr/bin/env bash\nexit 3\n", ""), tmp_path, 120)
    assert outcome.complaints == ["run.sh ended with 3"]


def test_the_words_after_compat_are_names_of_entries() -> None:
    command = ["make", "--dry-run", "compat", "flink", "unknown"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m tests.compat flink unknown\n" in done.stdout


def test_an_unknown_name_is_refused_with_the_names_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["unknown"]) == 2
    assert "unknown: no such entry; there are " in capsys.readouterr().out


@pytest.mark.parametrize("name", names())
def test_every_entry_has_a_list_and_a_page(name: str) -> None:
    assert read_allowed(COMPAT / name / "tests.allow")
    assert (COMPAT / name / "FINDINGS.md").exists()
    assert (ROOT / "docs" / "integrations" / f"{name}.md").exists()
