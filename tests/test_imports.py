"""Imports: one direction through the packages, and no slow packages in hot modules."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_imports_point_one_way() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(program), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("word", ["asyncio", "typer", "rich", "confluent_kafka", "kio", "sqlite3"])
def test_the_hot_modules_import_nothing_heavy(word: str) -> None:
    modules = "headrace.wire.batch, headrace.wire.fast, headrace.wire.framing"
    code = f"import sys, {modules}; sys.exit({word!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0, f"{modules} import {word}"


def test_a_broker_that_starts_does_not_import_the_classes_of_all_messages() -> None:
    code = "import sys, headrace.broker.server; sys.exit('kio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0, "importing headrace.broker.server imports kio"
