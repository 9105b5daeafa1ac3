"""A browser tab with the console, and checks of its content."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.sync_api import Browser, HttpCredentials, Page, ViewportSize, expect

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
COLOR_RULES = ["color-contrast", "link-in-text-block"]
"""The rules of axe that depend on colors, and that it checks by default."""
PATIENCE_MS = 60_000
"""Other tests use the processors at the same time."""
expect.set_options(timeout=PATIENCE_MS)

_VISIBLE_ROWS = """table => [...table.querySelectorAll("tbody tr:not(.space)")].filter(row => {
    const box = row.getBoundingClientRect();
    const inside = box.top < window.innerHeight && box.bottom > 0 && box.height > 5;
    const middle = document.elementFromPoint(box.left + 5, (box.top + box.bottom) / 2);
    return inside && middle !== null && row.contains(middle);
}).length"""


class Looking:
    """One tab; leaving it fails if a script of the page failed or was blocked by its policy."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        folder: Path,
        *,
        scheme: str = "light",
        width: int = 1280,
        height: int = 800,
        login: HttpCredentials | None = None,
    ) -> None:
        size: ViewportSize = {"width": width, "height": height}
        self._context = browser.new_context(
            base_url=url,
            viewport=size,
            color_scheme="dark" if scheme == "dark" else "light",
            accept_downloads=True,
            http_credentials=login,
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self._folder = Path(os.environ.get("CONSOLE_SCREENSHOTS", folder))
        self.problems: list[str] = []
        self.page = self.new_tab()

    def new_tab(self) -> Page:
        """Another tab of the same window."""
        page = self._context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on(
            "console",
            lambda message: (
                self.problems.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        return page

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context.close()
        if kind is None:
            assert self.problems == [], self.problems

    def visible_rows(self, label: str) -> int:
        """Rows of a table that a person sees: drawn inside of the window and not covered."""
        table = self.page.get_by_role("table", name=label, exact=True)
        return int(table.evaluate(_VISIBLE_ROWS))

    def screenshot(self, name: str) -> Path:
        """A picture of the window. Set CONSOLE_SCREENSHOTS to keep all pictures in a folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}.png"
        self.page.screenshot(path=path)
        return path

    def violations(self, *, only_colors: bool = False) -> list[str]:
        """Violations of accessibility rules, by axe. The page's policy stays in force."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(f"() => {{ {AXE.read_text()} }}")
        rules = f", runOnly: {COLOR_RULES}" if only_colors else ""
        found: dict[str, Any] = self.page.evaluate(
            f"axe.run({{ resultTypes: ['violations'], preload: false{rules} }})"
        )
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def check_appearance(self, name: str) -> None:
        """Takes a picture; fails if the page is not accessible or wider than the window."""
        self.screenshot(name)
        assert self.violations() == [], name
        assert not self.overflows(), f"{name} is wider than the window"

    def check_dialog(self, name: str) -> None:
        """Takes pictures of the open dialog: light, dark and narrow; fails if it is not accessible
        or does not fit. The window has its former size and colors again at the end."""
        dialog, before = self.page.get_by_role("dialog"), self.page.viewport_size
        assert before is not None
        expect(dialog.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
        found = self.violations()
        self.screenshot(f"{name}-light")
        self.page.emulate_media(color_scheme="dark")
        found += self.violations(only_colors=True)
        self.screenshot(f"{name}-dark")
        self.page.set_viewport_size({"width": 360, "height": 700})
        self.screenshot(f"{name}-360")
        box = dialog.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert not dialog.evaluate("box => box.scrollWidth > box.clientWidth + 1")
        cancel = dialog.get_by_role("button", name="Cancel", exact=True)
        cancel.scroll_into_view_if_needed()
        expect(cancel).to_be_in_viewport()
        self.page.set_viewport_size(before)
        self.page.emulate_media(color_scheme="light")
        assert found == [], name

    def overflows(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(
            self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
        )
