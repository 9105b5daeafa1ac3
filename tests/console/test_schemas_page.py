"""Schemas in a browser: versions, their difference, and a console without a registry."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.support.headrace_console import HeadraceConsole
from tests.support.headrace_registry import HeadraceRegistry


def test_a_console_without_a_registry_says_so(
    chromium: Browser, console: HeadraceConsole, tmp_path: Path
) -> None:
    with Looking(chromium, console.url, tmp_path) as looking:
        looking.page.goto("/schemas")
        expect(looking.page.locator(".unavailable")).to_have_text(
            "Not available: the console was started without --registry"
        )


def test_a_new_version_is_checked_registered_and_compared(
    chromium: Browser, headrace: RunningBroker, topic: str, tmp_path: Path
) -> None:
    first = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    fine = first.replace("]}", ',{"name":"added","type":"int","default":0}]}')
    broken = first.replace("]}", ',{"name":"added","type":"int"}]}')
    with (
        HeadraceRegistry(headrace.bootstrap_servers, tmp_path, topic=f"{topic}-s") as registry,
        HeadraceConsole(
            headrace.bootstrap_servers, tmp_path, "--registry", registry.url
        ) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        answer = console.http.post(f"/schemas/{topic}", json={"schema": first})
        assert answer.status_code == 200
        page = looking.page
        page.goto(f"/schemas/{topic}")
        page.get_by_role("button", name="New version").click()
        dialog = page.get_by_role("dialog")
        for text, verdict in ((broken, "not compatible"), (fine, "compatible")):
            dialog.get_by_role("textbox", name="Schema").fill(text)
            dialog.get_by_role("button", name="Check compatibility").click()
            expect(dialog.locator(".badge")).to_have_text(verdict)
        dialog.get_by_role("button", name="Register").click()
        expect(dialog).to_be_hidden()
        page.goto(f"/schemas/{topic}?version=2&with=1")
        difference = page.get_by_label("Difference between the two versions")
        expect(difference.get_by_text("added").first).to_be_visible()


def test_versions_are_deleted_one_by_one(
    chromium: Browser, headrace: RunningBroker, topic: str, tmp_path: Path
) -> None:
    first = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    second = first.replace("]}", ',{"name":"b","type":"int","default":0}]}')
    with (
        HeadraceRegistry(headrace.bootstrap_servers, tmp_path, topic=f"{topic}-s") as registry,
        HeadraceConsole(
            headrace.bootstrap_servers, tmp_path, "--registry", registry.url
        ) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        for text in (first, second):
            answer = console.http.post(f"/schemas/{topic}", json={"schema": text})
            assert answer.status_code == 200
        page = looking.page
        page.goto(f"/schemas/{topic}")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Delete version").click()
        looking.screenshot("schema-delete")
        dialog.get_by_label("Version").select_option("1")
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_text(f"Version 1 of {topic} was deleted.")).to_be_visible()
        versions = page.locator(".toolbar select").first.locator("option")
        expect(versions).to_have_count(1)
        expect(versions).to_have_text("2 (id 2)")
        page.get_by_role("button", name="Delete version").click()
        dialog.get_by_role("button", name="Cancel").click()
        expect(versions).to_have_count(1)
        page.get_by_role("button", name="Delete version").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_text("The registry has no subjects.")).to_be_visible()
        assert console.http.get("/schemas").json()["subjects"] == []
