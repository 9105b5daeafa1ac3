"""What users of each role see: forms that their role does not allow are not there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from headrace.security.http_users import verifier_text, write_user
from headrace.security.roles import Role
from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.console.test_groups import commit_offset
from tests.console.test_records_api import create, produce
from tests.support.headrace_console import HeadraceConsole

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def with_login(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """A console with a user for each role; the user has the name of the role."""
    folder = tmp_path_factory.mktemp("console")
    for role in Role:
        name = role.name.lower()
        write_user(folder / "users", name, f"{verifier_text(PASSWORD)},{name}")
    settings = ("authentication.method=BASIC", f"headrace.authentication.users.file={folder}/users")
    options = [word for each in settings for word in ("--set", each)]
    with HeadraceConsole(headrace.bootstrap_servers, folder, *options) as running:
        yield running


FORMS = {
    "/topics": ("Create topic", Role.WRITE),
    "/topics/TOPIC/partitions": ("Delete topic", Role.WRITE),
    "/topics/TOPIC/settings": ("Change retention.ms", Role.WRITE),
    "/topics/TOPIC/0/0": ("Produce again", Role.WRITE),
    "/groups/TOPIC-g": ("Reset offsets", Role.WRITE),
    "/brokers/1?q=log.cleaner.backoff": ("Change log.cleaner.backoff.ms", Role.ADMIN),
}
"""A button of each page, and the role that it needs."""


@pytest.mark.parametrize("role", list(Role))
def test_a_page_has_only_forms_that_the_role_allows(
    chromium: Browser,
    console: HeadraceConsole,
    with_login: HeadraceConsole,
    role: Role,
    topic: str,
    tmp_path: Path,
) -> None:
    create(console, topic)
    produce(console, topic, [{"value": "one"}])
    commit_offset(console, f"{topic}-g", topic, 0)
    name = role.name.lower()
    with Looking(
        chromium, with_login.url, tmp_path, login={"username": name, "password": PASSWORD}
    ) as looking:
        page = looking.page
        for address, (button, needed) in FORMS.items():
            page.goto(address.replace("TOPIC", topic))
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            _wait_for_data(page)
            found = page.get_by_role("button", name=button, exact=True)
            expect(found).to_have_count(1 if role >= needed else 0)
        page.goto(f"/topics/{topic}")
        if role is Role.VIEW:
            reason = "Not available: User:view has the role view: records"
            expect(page.get_by_text(reason)).to_be_visible()
        else:
            expect(page.get_by_role("table", name="Records")).to_be_visible()
        page.goto("/access/quotas")
        if role is not Role.ADMIN:
            expect(page.get_by_text(f"has the role {name}: ")).to_be_visible()
        expect(page.get_by_text(f"role {name}", exact=True)).to_have_count(
            0 if role is Role.ADMIN else 1
        )
        looking.check_appearance(f"role-{name}")


def _wait_for_data(page: Page) -> None:
    content = page.locator("main table, main .unavailable, main .record").first
    expect(content).to_be_visible()
    expect(page.get_by_text("Loading…")).to_have_count(0)
