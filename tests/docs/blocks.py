"""The code blocks of a Markdown page, and what is to be done with each.

A fenced block has a language. `sh` and `python` blocks are run; blocks in other languages show
output, settings or pictures. A comment directly above a block, which a reader of the rendered page
does not see, says what is special about it:

    <!-- run: until "TEXT" -->    stop the command with Ctrl-C once it has printed TEXT
    <!-- run: ready "TEXT" -->    the command goes on in the background; wait for TEXT
    <!-- run: save "FILE" -->     the block is the content of FILE, which a later block uses
    <!-- run: prints "TEXT" -->   the block ends by itself and has printed TEXT
    <!-- run: without "LINE" -->  leave out the lines that begin so
    <!-- run: skip "REASON" -->   the block cannot be run in a test
"""

import re
from dataclasses import dataclass
from pathlib import Path

RUN = ("sh", "python")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
_DIRECTIVE = re.compile(r'^\s*<!-- run: (?P<verb>\w+) "(?P<words>[^"]+)" -->\s*$')
VERBS = ("until", "ready", "save", "prints", "without", "skip")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: where it stands, what it says, and its directive if it has one."""

    line: int
    language: str
    text: str
    verb: str = ""
    words: str = ""


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of the page; ValueError for a directive that has no block or no meaning."""
    found: list[Block] = []
    verb = words = ""
    opened: tuple[int, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is not None:
            start, language, indent = opened
            if fence and not fence["language"]:
                text = "".join(f"{inside[indent:]}\n" for inside in lines)
                found.append(Block(start, language, text, verb, words))
                opened, lines, verb, words = None, [], "", ""
            else:
                lines.append(line)
        elif fence:
            opened = number, fence["language"], len(fence["indent"])
        elif directive := _DIRECTIVE.match(line):
            verb, words = directive["verb"], directive["words"]
            if verb not in VERBS:
                raise ValueError(f"{page.name}:{number}: unknown directive {verb!r}")
        elif verb and line.strip():
            raise ValueError(f"{page.name}:{number}: a directive stands directly above its block")
    if opened is not None:
        raise ValueError(f"{page.name}:{opened[0]}: the block is not closed")
    return found
