"""Style rules: lengths, names, docstrings, decisions."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.dead_code import Function, unused

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "headrace").rglob("*.py"))
FUNCTION_LINES = 70
CLASS_METHODS = 25
MODULE_NAMES = 25
PACKAGE_MODULES = 30

PUBLIC_API = (
    "headrace/testing/",
    "headrace/connect/connectors/",
    "headrace/connect/plugin.py",
    "headrace/connect/trial.py",
    "headrace/pipelines/foreach_batch.py",
    "pyspark_headrace",
)
"""What users import, and connectors, whose methods the host calls."""
STAND_INS = {"ManualClock", "MemoryDisk", "fail_next", "write_short", "corrupt"}
"""The clock and the disk of tests, beside those that they replace."""
CALLED_BY_LIBRARIES = {"serialize", "deserialize", "finalize"}  # by kazoo and sqlite3
VAGUE_NAMES = ("manager", "helper", "util", "base")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{named(path)}:{node.lineno} {node.name} has {lines} lines"
        for path in SOURCES
        for node in functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert long == []


def test_no_class_has_more_methods_than_one_noun_needs() -> None:
    large = [
        f"{named(path)}:{node.lineno} {node.name} has {count} methods"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and (count := sum(isinstance(each, Function) for each in node.body)) > CLASS_METHODS
    ]
    assert large == [], "find the second noun in the class"


def test_no_module_has_more_public_names_than_a_reader_remembers() -> None:
    names = {
        named(path): sum(
            isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
            for node in tree(path).body
        )
        for path in SOURCES
    }
    assert {name: count for name, count in names.items() if count > MODULE_NAMES} == {}


def test_no_package_has_more_modules_than_one_subject_needs() -> None:
    modules = Counter(named(path.parent) for path in SOURCES)
    assert {name: count for name, count in modules.items() if count > PACKAGE_MODULES} == {}


def test_no_code_is_dead() -> None:
    sources = ROOT / "src"
    dead = [
        f"{found.path.relative_to(sources)}:{found.line} {found.name}"
        for found in unused({path: tree(path) for path in sorted(sources.rglob("*.py"))})
        if found.name not in STAND_INS | CALLED_BY_LIBRARIES
        and not f"{found.path.relative_to(sources)} {found.name}".startswith(PUBLIC_API)
    ]
    assert dead == [], "nothing in src uses it; what only tests use belongs to the tests"


@pytest.mark.parametrize(
    ("source", "dead"),
    [
        ("def f(): ...\nf()", []),
        ("def f(): ...", ["f"]),
        ("class C:\n    def m(self): ...\nC()", ["m"]),
        ("class C:\n    def m(self): ...\nC().m()", []),
        ("class C(library.C):\n    def m(self): ...\nC()", []),
        ("@register\ndef f(): ...", []),
        ("from functools import cache\n@cache\ndef f(): ...", ["f"]),
        ("A = 1\n__all__ = ['A']", ["A"]),
        ("A, B = 1, 2\nprint(B)", ["A"]),
        ("class C: ...\ndef f(x: 'C | None'): ...\nf()", []),
        ("def f(): ...\nload('module:f')", []),
        ("def f(): ...\nprint('an f is not used here')", ["f"]),
    ],
)
def test_dead_code_is_found(source: str, dead: list[str]) -> None:
    assert [found.name for found in unused({Path("module.py"): ast.parse(source)})] == dead


def test_no_name_is_meaningless() -> None:
    vague = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and any(word in node.name.lower() for word in VAGUE_NAMES)
    ]
    vague += [named(path) for path in SOURCES if any(w in path.stem for w in VAGUE_NAMES)]
    assert vague == []


def public_classes() -> Iterator[tuple[str, Path]]:
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def test_no_two_public_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = {}
    for name, path in public_classes():
        found.setdefault(name, []).append(named(path))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert twice == {}


def test_every_module_has_a_docstring() -> None:
    silent = [named(path) for path in SOURCES if not ast.get_docstring(tree(path))]
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
        for node in direct_reads(tree(path))
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


FIELDS_BY_NAME = ("aborted", "answer", "header", "hint", "read", "result")
"""Names of values whose fields have names: headers of batches and results of reads."""


def test_no_field_of_a_header_or_a_result_is_read_by_its_position() -> None:
    by_position = [
        f"{named(path)}:{node.lineno} {ast.unparse(node)}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
        and re.split(r"\W", ast.unparse(node.value))[-1].lstrip("_") in FIELDS_BY_NAME
    ]
    assert by_position == []
