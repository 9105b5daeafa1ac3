"""Names that the package defines and never uses.

A name counts as used if the package reads a name or an attribute that is spelled the same, or has
it in a string that looks like a name or a type. So nothing is reported that is used, and some dead
code with a common name is not found. Tests do not count: what only they use belongs to them.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

DESCRIBING = frozenset(
    {
        "abstractmethod",
        "asynccontextmanager",
        "cache",
        "cached_property",
        "classmethod",
        "contextmanager",
        "dataclass",
        "lru_cache",
        "overload",
        "property",
        "runtime_checkable",
        "setter",
        "staticmethod",
    }
)
"""Decorators that do not use what they decorate; all others may register it somewhere."""
TYPE_NODES = (
    ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple,
    ast.List, ast.Constant, ast.Load,
)  # fmt: skip
LISTS_OF_NAMES = ("__all__", "__slots__")
OWN_BASES = {"NamedTuple", "Protocol", "Generic", "Exception", "TypedDict"}
"""Bases from outside that call no methods by name."""
LIKE_A_TYPE = re.compile(r"[A-Za-z_][\w.:]*|[A-Za-z_][\w.\[\], ]*[\[|][\w.\[\], |]*")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """Where a name is defined."""

    path: Path
    line: int
    name: str


def unused(trees: Mapping[Path, ast.Module]) -> list[Definition]:
    """Functions, classes, methods and constants that nothing in these files uses."""
    used = {name for tree in trees.values() for name in _uses(tree)}
    classes = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    return [
        found
        for path, tree in trees.items()
        for found in _definitions(path, tree.body, classes | OWN_BASES)
        if found.name not in used and not found.name.startswith("__")
    ]


def _definitions(path: Path, body: Iterable[ast.stmt], known: set[str]) -> Iterator[Definition]:
    """Those in a body; methods only of classes whose bases are all known."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not _is_registered(node):
                    yield Definition(path, node.lineno, node.name)
            case ast.ClassDef():
                if not _is_registered(node):
                    yield Definition(path, node.lineno, node.name)
                # A framework calls the methods of its subclasses; an enumeration is complete.
                if all(
                    isinstance(base, ast.Name | ast.Subscript) and _called(base) in known
                    for base in node.bases
                ):
                    methods = [each for each in node.body if isinstance(each, Function)]
                    yield from _definitions(path, methods, known)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for each in ast.walk(target):
                        if isinstance(each, ast.Name):
                            yield Definition(path, node.lineno, each.id)


def _is_registered(node: Function | ast.ClassDef) -> bool:
    return any(_called(decorator) not in DESCRIBING for decorator in node.decorator_list)


def _called(node: ast.expr) -> str:
    """The last name of `name`, `module.name`, `name(...)` or `name[...]`."""
    match node:
        case ast.Call():
            return _called(node.func)
        case ast.Subscript():
            return _called(node.value)
        case ast.Attribute():
            return node.attr
        case ast.Name():
            return node.id
        case _:
            return ""


def _uses(tree: ast.Module) -> Iterator[str]:
    nodes: list[ast.AST] = [tree]
    while nodes:
        match node := nodes.pop():
            case ast.Assign(targets=[ast.Name(id=name)]) if name in LISTS_OF_NAMES:
                continue  # to export a name is not to use it
            case ast.Name(ctx=ast.Load() | ast.Del()):
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.MatchClass():
                yield from node.kwd_attrs
            case ast.alias(asname=str()):
                yield node.name
            case ast.Constant(value=str() as text):
                yield from _names_in(text)
        nodes.extend(ast.iter_child_nodes(node))


def _names_in(text: str) -> Iterator[str]:
    """The names in a type or in `module:function`; none in a sentence."""
    if not LIKE_A_TYPE.fullmatch(text):
        return
    try:
        parsed = ast.parse(text.replace(":", "."), mode="eval")
    except SyntaxError:
        return
    nodes = list(ast.walk(parsed))
    if all(isinstance(node, TYPE_NODES) for node in nodes):
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                yield _called(node)
