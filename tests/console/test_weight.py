"""What a browser has to load."""

import gzip
import re

from headrace.console.assets import FOLDER

START_BYTES = 60_000
LAZY_BYTES = 175_000


def weight(name: str) -> int:
    return len(gzip.compress((FOLDER / name).read_bytes()))


def loaded_at_start() -> set[str]:
    """Files that index.html names, and files that those import before they run."""
    index = (FOLDER / "index.html").read_text()
    found: set[str] = set()
    waiting = re.findall(r'(?:src|href)="/(assets/[^"]+)"', index)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name.endswith(".js"):
                imports = r'(?:^|[;}])import(?:[^"\'();]*from)?["\']\./([^"\']+)["\']'
                waiting += [
                    f"assets/{each}" for each in re.findall(imports, (FOLDER / name).read_text())
                ]
    return found


def test_the_start_of_the_console_is_light() -> None:
    start = loaded_at_start()
    assert {name.rsplit(".", 1)[1] for name in start} == {"js", "css"}
    assert sum(weight(name) for name in start) <= START_BYTES


def test_no_part_that_is_loaded_later_is_heavy() -> None:
    parts = {
        str(path.relative_to(FOLDER)): weight(str(path.relative_to(FOLDER)))
        for path in FOLDER.rglob("*")
        if path.is_file()
    }
    assert len(parts) > 10
    assert {name: size for name, size in parts.items() if size > LAZY_BYTES} == {}
