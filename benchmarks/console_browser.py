"""The budgets of the console that a browser measures: first paint, and what a live tail costs."""

import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.console_figure import Figure
from benchmarks.processes import tree_cpu_seconds
from tests.support.headrace_console import HeadraceConsole

PAINTS = 7
TAIL_SECONDS = 10.0
_COUNT_LONG_TASKS = """
window.longTasks = 0;
new PerformanceObserver(list => { window.longTasks += list.getEntries().length; })
    .observe({ type: "longtask", buffered: false });
"""
_FIRST_PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime"""


@contextmanager
def chromium() -> Iterator[tuple[Browser, int]]:
    """Debian's Chromium without a window, and the id of its first process."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: make tools"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        session = browser.new_browser_cdp_session()
        found = session.send("SystemInfo.getProcessInfo")["processInfo"]
        (first,) = (each["id"] for each in found if each["type"] == "browser")
        yield browser, first
        browser.close()


def first_paints(console: HeadraceConsole) -> Iterator[Figure]:
    took_ms: list[float] = []
    with chromium() as (browser, _):
        for _ in range(PAINTS):
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{console.url}/topics")
            page.wait_for_selector("tbody tr")
            page.wait_for_function(_FIRST_PAINT)
            took_ms.append(float(page.evaluate(_FIRST_PAINT)))
            context.close()
    yield Figure("first paint of the list of topics", statistics.median(took_ms), "ms", 150)


def tail_in_browser(
    console: HeadraceConsole, topic: str, rate: int, produce: Callable[[float], None]
) -> Iterator[Figure]:
    """One tab follows the topic while `produce` writes to it for so many seconds."""
    with chromium() as (browser, first):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{console.url}/topics/{topic}?mode=live&volume=no")
        _produce_beside(page, produce, 3.0)
        page.evaluate(_COUNT_LONG_TASKS)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        main_before = _main_thread_s(session.send("Performance.getMetrics"))
        before, begin = tree_cpu_seconds(first), time.perf_counter()
        _produce_beside(page, produce, TAIL_SECONDS)
        wall = time.perf_counter() - begin
        browser_share = (tree_cpu_seconds(first) - before) / wall
        main_share = (_main_thread_s(session.send("Performance.getMetrics")) - main_before) / wall
        long_tasks = int(page.evaluate("window.longTasks"))
        assert page.locator("tbody tr").count() > 5, "the tail shows nothing"
    name = f"tail of {rate:,} records/s"
    yield Figure(f"{name}, all processes of the browser", browser_share * 100, "% of a core", 25)
    yield Figure(f"{name}, main thread of the page", main_share * 100, "% of a core", 15)
    yield Figure(f"{name}, tasks over 50 ms", long_tasks, "", 0)


def _produce_beside(page: Page, produce: Callable[[float], None], seconds: float) -> None:
    """Writes in a thread, because the browser's events are handled in this one."""
    thread = threading.Thread(target=produce, args=(seconds,))
    thread.start()
    while thread.is_alive():
        page.wait_for_timeout(200)
    thread.join()


def _main_thread_s(answer: dict[str, list[dict[str, float | str]]]) -> float:
    metrics = {str(each["name"]): float(each["value"]) for each in answer["metrics"]}
    return metrics["TaskDuration"]
