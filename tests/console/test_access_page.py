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
        looking.check_dialog("acl-add")
        dialog.get_by_role("button", name="Add", exact=True).click()
        acls = page.get_by_role("table", name="ACLs").get_by_role("row")
        expect(acls.filter(has_text="alice")).to_contain_text("topic orders")
        page.get_by_role("button", name="Delete the ACL of User:alice for orders").click()
        looking.check_dialog("acl-delete")
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(acls.filter(has_text="alice")).to_have_count(0)
        page.goto("/access/users")
        page.get_by_role("button", name="Delete alice").click()
        looking.check_dialog("user-delete")
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(users.filter(has_text="alice")).to_have_count(0)


def test_quotas_are_set_changed_and_removed(page: Page, topic: str) -> None:
    user = f"user-{topic}"
    page.goto("/access/quotas")
    page.get_by_role("button", name="Set quota").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(user)
    dialog.get_by_label("producer byte rate").fill("1000000")
    dialog.get_by_label("request percentage").fill("not a number")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("request percentage").fill("50")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(dialog).to_be_hidden()
    row = page.get_by_role("table", name="Quotas").get_by_role("row").filter(has_text=user)
    expect(row).to_contain_text("producer byte rate: 1,000,000")
    expect(row).to_contain_text("request percentage: 50")

    change = page.get_by_role("button", name=f"Change the quotas of user {user}")
    change.click()
    expect(dialog.get_by_label("producer byte rate")).to_have_value("1000000")
    dialog.get_by_label("producer byte rate").fill("")
    dialog.get_by_label("request percentage").fill("70")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_contain_text("request percentage: 70")
    expect(row).not_to_contain_text("producer byte rate")
    change.click()
    dialog.get_by_label("request percentage").fill("")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_have_count(0)
