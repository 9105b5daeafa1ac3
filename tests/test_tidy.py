"""House rules that a machine can check: lengths, names, docstrings, decisions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "headrace").rglob("*.py"))
MODULE_LINES = 700
FUNCTION_LINES = 70
VAGUE_NAMES = ("manager", "helper", "util", "base")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_module_is_longer_than_a_reader_bears() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{named(path)}:{node.lineno} {node.name} has {lines} lines"
        for path in SOURCES
        for node in functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert long == []


def test_no_name_says_nothing() -> None:
    vague = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(word in node.name.lower() for word in VAGUE_NAMES)
    ]
    vague += [named(path) for path in SOURCES if any(w in path.stem for w in VAGUE_NAMES)]
    assert vague == []


NAMES_OF_TWO_CLASSES = frozenset({"Connection"})
"""The same noun from two sides: a connection of the broker, and one of the client."""


def public_classes() -> Iterator[tuple[str, Path]]:
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def test_no_two_public_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = {}
    for name, path in public_classes():
        found.setdefault(name, []).append(named(path))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert {name: twice[name] for name in twice.keys() - NAMES_OF_TWO_CLASSES} == {}
    assert twice.keys() >= NAMES_OF_TWO_CLASSES, "remove names that only one class has"


def test_every_module_says_what_lives_in_it() -> None:
    silent = [named(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


READ_CALLS = {
    "open", "os.open", "os.pread", "os.preadv", "os.read", "os.readv", "os.sendfile", "mmap.mmap",
}  # fmt: skip
READ_METHODS = {"open", "read_bytes", "read_text"}
DISK_USERS = ("apis", "broker", "coordination", "log", "replication")


def direct_reads(tree: ast.AST) -> Iterator[ast.Attribute | ast.Name]:
    """Calls that read a file, or are kept to do so, without the disk that was passed in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in READ_CALLS:
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = isinstance(node.func.value, ast.Call) and ast.unparse(node.func.value.func)
            if node.func.attr in READ_METHODS and path == "Path":
                yield node.func


def test_files_of_logs_are_read_through_the_disk() -> None:
    direct = [
        f"{named(path)}:{node.lineno} {ast.unparse(node)}"
        for part in DISK_USERS
        for path in sorted((ROOT / "src" / "headrace" / part).rglob("*.py"))
        for node in direct_reads(ast.parse(path.read_text()))
    ]
    assert direct == [], "use headrace.disk, so that tests can let every read fail"


def test_no_module_uses_the_admin_client_of_librdkafka() -> None:
    # It aborts the process while brokers come and go; `headrace.client` has the same requests.
    users = [named(path) for path in SOURCES if "confluent_kafka.admin" in path.read_text()]
    assert users == []


def test_every_decision_has_a_number_a_status_and_a_date() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    head = re.compile(
        r"# \d{4}: .+\n\nStatus: (accepted|superseded by .+)\. Date: \d{4}-\d\d-\d\d\.\n"
    )
    assert [named(path) for path in records if not head.match(path.read_text())] == []
    numbers = [path.name[:4] for path in records]
    assert len(numbers) == len(set(numbers))
