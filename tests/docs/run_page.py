"""Run the code blocks of a page from top to bottom, as a reader would who types them.

    python -m tests.docs.run_page PAGE FOLDER

`sh` blocks are run by bash in FOLDER; `python` blocks share one interpreter; a `python` block with
test functions is run by pytest. The process is expected to be alone in namespaces for network and
processes: ports are those of the page, and what is left running ends with it. The exit code is 1
if a block fails, and the output says which.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.blocks import RUN, Block, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 240


class BlockFailedError(Exception):
    """A block did not do what the page promises."""


def main(page: Path, folder: Path) -> int:
    """Run all blocks; the exit code."""
    os.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.verb == "skip" or (block.language not in RUN and block.verb != "save"):
            continue
        print(f"--- {page.name}:{block.line}", flush=True)
        try:
            run(block, names, folder)
        except BaseException:
            traceback.print_exc()
            print(f"FAILED: the block at {page.name}:{block.line}", flush=True)
            return 1
    return 0


def run(block: Block, names: dict[str, Any], folder: Path) -> None:
    """Run one block; an exception if it fails."""
    if block.verb == "save":
        (folder / block.words).write_text(block.text)
    elif block.language == "sh":
        run_shell(block, folder)
    elif "\ndef test_" in block.text:
        file = folder / f"test_block_{block.line}.py"
        file.write_text(block.text)
        command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", file.name]
        subprocess.run(command, cwd=folder, check=True)
    else:
        exec(compile(block.text, f"line {block.line}", "exec"), names)
        if "spark" in names:
            see_queries_work(names["spark"])


def see_queries_work(spark: "SparkSession") -> None:
    """Let the streaming queries process what is there; an exception if one has failed."""
    for query in spark.streams.active:
        query.processAllAvailable()
    spark.streams.awaitAnyTermination(0)


def run_shell(block: Block, folder: Path) -> None:
    """Run a block with bash, and see to it that it prints what its directive says."""
    text = block.text
    if block.verb == "without":
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith(block.words))
    log = folder / f"block-{block.line}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if block.verb in ("until", "ready"):
            wait_for(block.words, log, process)
            if block.verb == "until":
                os.killpg(process.pid, signal.SIGINT)
                process.wait(WAIT_S)
        elif code := process.wait(WAIT_S):
            raise BlockFailedError(f"exit code {code}")
        if block.verb == "prints" and block.words not in log.read_text(errors="replace"):
            raise BlockFailedError(f"it did not print {block.words!r}")
    finally:
        print(log.read_text(errors="replace"), flush=True)


def wait_for(text: str, log: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the block has printed the text."""
    deadline = time.monotonic() + WAIT_S
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None:
            raise BlockFailedError(f"ended with {process.returncode} without printing {text!r}")
        if time.monotonic() > deadline:
            raise BlockFailedError(f"did not print {text!r} within {WAIT_S} s")
        time.sleep(0.1)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    sys.stdout.flush()
    # Threads of a page's clients must not keep this process; its namespace ends with it.
    os._exit(code)
