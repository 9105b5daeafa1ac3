"""The SQL page in a browser, with a SQL server and its Spark. One server serves all cases."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.sql.sql_process import SqlProcess, wait
from tests.support.headrace_console import HeadraceConsole

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SETUP = """
CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, total DOUBLE)
  WITH (kafka_topic='orders', value_format='json', partitions=1);
CREATE TABLE customers (name VARCHAR PRIMARY KEY, town VARCHAR)
  WITH (kafka_topic='customers', value_format='json', partitions=1);
"""
TOTALS = """CREATE TABLE totals AS
  SELECT customer, COUNT(*) AS orders, SUM(total) AS total
  FROM orders
  GROUP BY customer
  EMIT CHANGES;"""
RUN = "Run"
SPARK_MS = 240_000
"""Spark may have to start first."""


@pytest.fixture(scope="module")
def server(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlProcess]:
    folder = tmp_path_factory.mktemp("sql")
    running = SqlProcess(headrace.bootstrap_servers, folder, f"page-{uuid.uuid4().hex[:8]}")
    running.sql(SETUP)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def with_sql(
    headrace: RunningBroker, server: SqlProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    folder = tmp_path_factory.mktemp("console")
    options = ("--sql", f"http://{server.address}")
    with HeadraceConsole(headrace.bootstrap_servers, folder, *options) as running:
        yield running


@pytest.fixture
def tab(chromium: Browser, with_sql: HeadraceConsole, tmp_path: Path) -> Iterator[Looking]:
    with Looking(chromium, with_sql.url, tmp_path) as looking:
        looking.page.goto("/sql")
        _write(looking.page, "")
        yield looking


def _write(page: Page, text: str) -> None:
    """Replaces the text of the editor, when it is loaded."""
    editor = page.locator(".cm-content")
    expect(editor).to_be_visible()
    editor.focus()
    page.keyboard.press("Control+a")
    # Text that replaces coloured text would get its style from the browser, which the policy of the
    # page refuses.
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def _run(page: Page, text: str) -> None:
    _write(page, text)
    page.get_by_role("button", name=RUN, exact=True).click()
    expect(page.get_by_role("button", name=RUN, exact=True)).to_be_enabled(timeout=SPARK_MS)


def _cells(page: Page, table: str = "Rows") -> list[list[str]]:
    rows = page.get_by_role("table", name=table, exact=True).locator("tbody tr")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def test_a_query_is_created_and_its_results_come_live(
    tab: Looking, server: SqlProcess, chromium: Browser
) -> None:
    page = tab.page
    _run(page, TOTALS)
    created = page.get_by_role("region", name=re.compile("Result of CREATE TABLE"))
    expect(created.get_by_text("done", exact=True)).to_be_visible()
    created.get_by_role("link", name="Show the query").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("CTAS_totals"))
    expect(page.get_by_role("region", name="Plan")).to_be_visible(timeout=SPARK_MS)
    wait(server.states, lambda states: "RUNNING" in states.values())
    tab.check_appearance("sql-query")
    page.go_back()

    _run(page, "SELECT * FROM totals EMIT CHANGES;")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    server.sql(
        "INSERT INTO orders VALUES (1, 'ann', 10.5); INSERT INTO orders VALUES (2, 'bob', 3);"
    )
    bob = page.get_by_role("table", name="Rows").get_by_role("row", name="bob")
    expect(bob.first).to_be_visible(timeout=SPARK_MS)
    server.sql("INSERT INTO orders VALUES (3, 'ann', 1.5);")
    expect(page.get_by_role("table", name="Rows").locator("tbody tr").first).to_contain_text(
        "12", timeout=SPARK_MS
    )
    assert _cells(page)[0] == ["ann", "2", "12.0"], "the newest row is the first one"
    assert tab.visible_rows("Rows") >= 3
    tab.check_appearance("sql-push")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("stopped", exact=True)).to_be_visible()

    _run(page, "SELECT customer, total FROM totals WHERE customer = 'ann';")
    expect(page.get_by_text("complete", exact=True)).to_be_visible(timeout=SPARK_MS)
    wait(lambda: _cells(page), lambda cells: cells == [["ann", "12.0"]])
    for scheme, width in (("light", 360), ("dark", 1280), ("dark", 360)):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 800})
        tab.check_appearance(f"sql-pull-{scheme}-{width}")


def test_results_of_several_statements_are_shown_readably(tab: Looking) -> None:
    page = tab.page
    _run(
        page,
        "SET 'auto.offset.reset'='earliest';\n"
        "LIST STREAMS;\nDESCRIBE orders EXTENDED;\n"
        "EXPLAIN SELECT * FROM customers WHERE name = 'ann';\n"
        "LIST FUNCTIONS;",
    )
    result = page.get_by_role("region", name="Result of DESCRIBE orders EXTENDED")
    expect(page.get_by_role("table", name="Functions")).to_be_visible()
    assert _cells(page, "Columns") == [
        ["id", "BIGINT", "key"], ["customer", "STRING", ""], ["total", "DOUBLE", ""],
    ]  # fmt: skip
    expect(result.get_by_role("link", name="orders").first).to_have_attribute(
        "href", "/topics/orders"
    )
    expect(page.get_by_role("region", name="How it is answered")).to_be_visible()
    expect(page.get_by_role("table", name="Streams")).to_contain_text("orders")
    tab.check_appearance("sql-results")


def test_an_error_shows_its_place_in_the_text(tab: Looking) -> None:
    page = tab.page
    _run(page, "LIST TABLES;\n\nCREATE\nSTRAM x (a INT);\nLIST STREAMS;")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("Line 4, column 1")
    expect(page.locator(".cm-mistake")).to_have_text("STRAM")
    expect(page.get_by_role("region", name="Result of LIST STREAMS")).to_have_count(0)
    tab.check_appearance("sql-error")
    page.emulate_media(color_scheme="dark")
    tab.check_appearance("sql-error-dark")
    problem.get_by_role("button").click()
    page.keyboard.type("X")
    expect(page.locator(".cm-line").nth(3)).to_have_text("XSTRAM x (a INT);")
    expect(problem).to_have_count(0)
    _run(page, "SELECT 'not closed FROM orders;")
    expect(page.get_by_role("alert")).to_contain_text("Line 1, column 8")


def test_names_columns_functions_and_keywords_are_completed(tab: Looking) -> None:
    page = tab.page
    expect(page.get_by_role("complementary")).to_contain_text("customers")

    def options(text: str) -> list[str]:
        _write(page, "")
        page.locator(".cm-content").press_sequentially(text)
        found = page.locator(".cm-tooltip-autocomplete")
        expect(found).to_be_visible()
        return found.locator(".cm-completionLabel").all_inner_texts()

    assert options("SELECT * FROM cust")[0] == "customers"
    tab.screenshot("sql-completion")
    page.keyboard.press("Enter")
    expect(page.locator(".cm-line")).to_have_text("SELECT * FROM customers")
    _write(page, "")
    page.locator(".cm-content").press_sequentially("SELECT 1 FROM orders o WHERE o.tot")
    expect(page.locator(".cm-completionLabel").first).to_have_text("total")
    assert "COUNT" in options("SELECT COU")
    assert "emit changes" in options("select * from orders emi")


def test_queries_are_paused_resumed_and_terminated(tab: Looking, server: SqlProcess) -> None:
    page = tab.page
    server.sql("CREATE STREAM large AS SELECT * FROM orders WHERE total > 100;")
    query = next(each for each in server.states() if "large" in each)
    page.goto("/sql/queries")
    row = page.get_by_role("table", name="Queries").get_by_role("row", name=query)
    expect(row).to_contain_text("running", timeout=SPARK_MS)
    tab.check_appearance("sql-queries")
    page.set_viewport_size({"width": 360, "height": 800})
    tab.check_appearance("sql-queries-360")
    page.get_by_role("button", name=f"Pause {query}").click()
    expect(row).to_contain_text("paused")
    page.get_by_role("button", name=f"Resume {query}").click()
    expect(row).to_contain_text("running", timeout=SPARK_MS)
    page.get_by_role("button", name=f"Terminate {query}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".cli code")).to_contain_text("headrace sql -e")
    tab.check_appearance("sql-terminate-360")
    page.emulate_media(color_scheme="dark")
    tab.check_appearance("sql-terminate-360-dark")
    dialog.get_by_role("button", name="Terminate").click()
    expect(row).to_have_count(0)
    assert query not in server.states()


def test_the_address_has_the_text_and_the_history_keeps_it(tab: Looking) -> None:
    page = tab.page
    text = "SELECT *\nFROM customers;"
    _write(page, text)
    page.get_by_label("New queries read").select_option("all records")
    page.wait_for_url(re.compile(r"sql=SELECT.*from=earliest|from=earliest.*sql=SELECT"))
    address = page.url
    page.get_by_role("button", name=RUN, exact=True).click()
    expect(page.get_by_text("complete", exact=True)).to_be_visible(timeout=SPARK_MS)
    page.goto("/sql")
    page.goto(address)
    expect(page.locator(".cm-line")).to_have_text(["SELECT *", "FROM customers;"])
    expect(page.get_by_label("New queries read")).to_have_value("earliest")
    expect(page.get_by_role("region", name="Result of SELECT *")).to_have_count(0)
    _write(page, "")
    page.get_by_role("button", name="History").click()
    tab.check_appearance("sql-history")
    page.get_by_role("button", name="SELECT * FROM customers;").click()
    expect(page.locator(".cm-line")).to_have_text(["SELECT *", "FROM customers;"])


def test_lineage_and_spark_queries_show_statements(tab: Looking, server: SqlProcess) -> None:
    page = tab.page
    query = next(each for each in server.states() if "totals" in each)
    page.goto("/queries")
    expect(page.get_by_role("table", name="Spark queries")).to_contain_text(query)
    page.goto("/lineage?q=CTAS_totals")
    flows = page.get_by_role("table", name="Flows")
    expect(
        flows.get_by_role("row").filter(has_text=query).filter(has_text="orders").first
    ).to_be_visible()
    expect(
        flows.get_by_role("row").filter(has_text=query).filter(has_text="totals").first
    ).to_be_visible()
    tab.check_appearance("sql-lineage")
    page.goto("/sql/sources")
    expect(page.get_by_role("table", name="Tables")).to_contain_text("customers")
    tab.check_appearance("sql-sources")
    page.goto("/sql/sources/totals")
    expect(page.get_by_role("table", name="Queries that write")).to_contain_text(query)
    tab.check_appearance("sql-source")
    page.get_by_role("button", name="Query in the editor").click()
    expect(page.locator(".cm-line")).to_have_text("SELECT * FROM totals;")


def test_a_read_only_console_runs_queries_and_no_changes(
    chromium: Browser, headrace: RunningBroker, server: SqlProcess, tmp_path: Path
) -> None:
    options = ("--sql", f"http://{server.address}", "--read-only")
    with (
        HeadraceConsole(headrace.bootstrap_servers, tmp_path, *options) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        page = looking.page
        page.goto("/sql")
        _run(page, "DROP TABLE customers;")
        expect(page.get_by_role("alert")).to_contain_text("This console is read-only")
        _run(page, "SELECT name FROM customers;")
        expect(page.get_by_text("complete", exact=True)).to_be_visible(timeout=SPARK_MS)
        looking.check_appearance("sql-read-only")
        page.goto("/sql/queries")
        expect(page.get_by_role("table", name="Queries")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Pause|Terminate"))).to_have_count(0)


def test_without_a_server_the_page_tells_why(
    chromium: Browser, console: HeadraceConsole, tmp_path: Path
) -> None:
    with Looking(chromium, console.url, tmp_path) as looking:
        looking.page.goto("/sql")
        expect(looking.page.get_by_text("Not available: the console was started")).to_be_visible()
        looking.check_appearance("sql-not-available")
