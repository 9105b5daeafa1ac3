"""Every code block of README.md, docs/ and some examples runs as printed, in its order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines.running import spark_home
from tests.docs.blocks import RUN, blocks
from tests.support import java

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [ROOT / "examples" / name / "README.md" for name in ("mqtt", "postgresql-to-delta")]
INTEGRATIONS = sorted((ROOT / "docs" / "integrations").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *INTEGRATIONS, *EXAMPLES]
SHOWN = {"text", "properties", "json", "console", "sql"}
"""Languages of blocks that show something and are not run."""
SKIPPED = {
    "docs/deployment.md": 3,  # a download of packages, YARN, Kubernetes
}
"""How many blocks of a page cannot be run in a test."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_BLOCKS = [page for page in PAGES if any(block.language in RUN for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_has_a_language(page: Path) -> None:
    found = blocks(page)
    assert {block.language for block in found} <= {*RUN, *SHOWN}
    skipped = sum(block.verb == "skip" for block in found)
    assert skipped == SKIPPED.get(name(page), 0)


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name)
def test_the_blocks_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make namespaces, in which the ports of the pages are free")
    if reason := java.missing():
        pytest.skip(reason)
    # As in a clone after its installation; what the page writes stays in this folder.
    for entry in ROOT.iterdir():
        if entry.name not in ("data", "checkpoints", ".git"):
            (tmp_path / entry.name).symlink_to(entry)
    command = 'ip link set lo up && exec "$0" -m tests.docs.run_page "$1" "$2"'
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Spark's Python processes start three times as fast; test_pyspark_import.py has Spark's own.
    if home := spark_home.without_zips(os.environ):
        environment["SPARK_HOME"] = str(home)
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
         "bash", "-c", command, sys.executable, str(page), str(tmp_path)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]


def test_a_block_that_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nfound = 1\n```\n\n```sh\ntest -f nothing.txt\necho past\n```\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", str(page), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "FAILED: the block at page.md:5" in done.stdout
    assert "past" not in done.stdout


def test_a_directive_without_a_block_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('<!-- run: until "x" -->\n\nA paragraph.\n')
    with pytest.raises(ValueError, match="directly above its block"):
        blocks(page)
