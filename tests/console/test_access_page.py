"""Users, ACLs and quotas of a secured broker in a browser, and of a broker without ACLs."""

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from headrace.testing.plugin import BrokerFactory
from tests.console.looking import Looking
from tests.support.headrace_console import HeadraceConsole


def test_a_cluster_without_acls_says_so(page: Page) -> None:
    page.goto("/access/acls")
    expect(page.locator(".unavailable, .error")).to_contain_text("uthorizer")


def test_users_and_acls_are_added_and_deleted(
    chromium: Browser, headrace_factory: BrokerFactory, tmp_path: Path
) -> None:
    broker = headrace_factory(secure=True)
    options = ("--client-config", str(broker.security.client_config))
    with (
        HeadraceConsole(broker.bootstrap_servers, tmp_path, *options) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        page = looking.page
        dialog = page.get_by_role("dialog")
        page.goto("/access/users")
        users = page.get_by_role("table", name="Users").get_by_role("row")
        expect(users.filter(has_text="admin")).to_be_visible()
        page.get_by_role("button", name="Add user").click()
        dialog.get_by_label("Name", exact=True).fill("alice")
        dialog.get_by_label("Password", exact=True).fill("a-secret-7")
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(users.filter(has_text="alice")).to_contain_text("SCRAM-SHA-512")
        page.goto("/access/acls")
        page.get_by_role("button", name="Add ACL").click()
        dialog.get_by_label("Principal").fill("User:alice")
        dialog.get_by_label("Resource name").fill("orders")
        dialog.get_by_role("button", name="Add", exact=True).click()
        acls = page.get_by_role("table", name="ACLs").get_by_role("row")
        expect(acls.filter(has_text="alice")).to_contain_text("topic orders")
        page.get_by_role("button", name="Delete the ACL of User:alice for orders").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(acls.filter(has_text="alice")).to_have_count(0)
        page.goto("/access/users")
        page.get_by_role("button", name="Delete alice").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(users.filter(has_text="alice")).to_have_count(0)
