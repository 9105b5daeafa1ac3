"""Rule 11, G1c: no operation may depend, even indirectly, on one that began after it.

An operation comes before another if the other read what it wrote, or began after it had
completed; this includes the order within a process. The graph stays small: completions
form a chain, and every operation is between the last completion before it and its own.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.observations import Observations, Violation


def cycles(found: Observations) -> Iterator[Violation]:
    """Rule 11."""
    for group in _strongly_connected(_graph(found)):
        if len(group) > 1:
            numbers = sorted(number for kind, number in group if kind == "op")
            names = "; ".join(str(found.operations[number]) for number in numbers)
            yield Violation(11, f"these depend on one another: {names}")


Node = tuple[str, int]
"""("op", number) or ("moment", place of a completion in the history)."""


def _graph(found: Observations) -> dict[Node, set[Node]]:
    edges: dict[Node, set[Node]] = {}
    numbers = {id(operation): n for n, operation in enumerate(found.operations)}
    moments = sorted(
        one.completed for one in found.operations if one.type == "ok" and one.completed is not None
    )
    for before, after in pairwise(moments):
        edges.setdefault(("moment", before), set()).add(("moment", after))
    begun = 0
    for n, operation in enumerate(found.operations):
        if operation.type == "ok" and operation.completed is not None:
            edges.setdefault(("op", n), set()).add(("moment", operation.completed))
        while begun < len(moments) and moments[begun] < operation.invoked:
            begun += 1
        if begun:
            edges.setdefault(("moment", moments[begun - 1]), set()).add(("op", n))
    for reader, key, _, value in found.reads():
        writer = found.writer.get(key, {}).get(value)
        if writer is not None and writer is not reader and writer.type != "fail":
            edges.setdefault(("op", numbers[id(writer)]), set()).add(("op", numbers[id(reader)]))
    return edges


def _strongly_connected(edges: dict[Node, set[Node]]) -> Iterator[list[Node]]:
    """Tarjan's components, without recursion: a chain of moments is longer than Python's stack."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            deeper = None
            for successor in successors:
                if successor not in index:
                    deeper = successor
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            if deeper is not None:
                index[deeper] = low[deeper] = len(index)
                stack.append(deeper)
                on_stack.add(deeper)
                work.append((deeper, iter(edges.get(deeper, ()))))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                group = []
                while True:
                    member = stack.pop()
                    on_stack.discard(member)
                    group.append(member)
                    if member == node:
                        break
                yield group
