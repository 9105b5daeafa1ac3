"""Clusters, consoles for them, and a browser that shows their pages."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headrace.console.assets import FOLDER
from headrace.testing.running import RunningBroker
from tests.console.looking import PATIENCE_MS, Looking
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_console import HeadraceConsole

KAFKA = pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])


@pytest.fixture(scope="session", autouse=True)
def pages(request: pytest.FixtureRequest) -> None:
    """Without the pages nothing here is tested, which must not pass for success."""
    if not (FOLDER / "index.html").is_file() and not request.config.getoption("--fast"):
        pytest.fail("the pages of the console are not built: make console", pytrace=False)


@pytest.fixture(scope="session")
def console(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """For all tests that use only topics and groups of their own."""
    with HeadraceConsole(headrace.bootstrap_servers, tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture(scope="session")
def kafka_console(
    apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """A console of a real Apache Kafka."""
    with HeadraceConsole(apache_kafka.bootstrap, tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture(params=["headrace", KAFKA])
def any_console(request: pytest.FixtureRequest) -> HeadraceConsole:
    """What passes on our broker must pass on Apache Kafka."""
    name = "kafka_console" if request.param == "kafka" else "console"
    found: HeadraceConsole = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for one module: while it runs, its thread has an event loop, and tests of other
    modules that start one would fail."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: make tools")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def looking(chromium: Browser, any_console: HeadraceConsole, tmp_path: Path) -> Iterator[Looking]:
    """A tab on each console. The test fails if the page throws an error or violates its policy."""
    with Looking(chromium, any_console.url, tmp_path) as tab:
        yield tab


@pytest.fixture
def page(looking: Looking) -> Page:
    return looking.page


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"
