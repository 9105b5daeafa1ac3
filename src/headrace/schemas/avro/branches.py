"""Unions, arrays and maps of Avro: types with several values, or values of several types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa

from headrace.schemas.avro.steps import BytesStep, ColumnStep, NullStep, Raw, RecordStep
from headrace.schemas.avro.tree import AvroNode
from headrace.schemas.columns.cursors import Cursors, Rows, Uneven, scattered
from headrace.wire.columns import Numbers

# The limit of branches, so that their number fits into one byte.
BRANCHES_MAX = 64
# The longest array or map that is read together with others.
TURNS_MAX = 256
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "string": (str,),
    "array": (list,),
    "map": (dict,),
}


@dataclass(frozen=True, slots=True)
class UnionBranch:
    """A branch of the writer's union: its step, or the error if the reader cannot read it."""

    node: AvroNode
    step: ColumnStep | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class UnionStep:
    """A union of the writer. The reader's type is the same for all its branches."""

    path: str
    type: pa.DataType
    branches: tuple[UnionBranch, ...]

    @property
    def vector(self) -> bool:
        return len(self.branches) <= BRANCHES_MAX and all(
            branch.step is None or branch.step.vector for branch in self.branches
        )

    def read(self, cursors: Cursors) -> pa.Array:
        which = self._which(cursors)
        count = len(cursors)
        parts = []
        for number, branch in enumerate(self.branches):
            chosen = which == number
            if branch.step is None:
                cursors.fail(chosen, branch.why_not)
                continue
            if isinstance(branch.step, NullStep):
                continue
            rows = np.flatnonzero(chosen)
            if len(rows) == count:
                return branch.step.read(cursors)
            if not len(rows):
                continue
            part = cursors.subset(rows)
            if isinstance(branch.step, BytesStep) and self._is_optional():
                # Text is copied once, with the nulls in their places.
                at, length = np.zeros(count, np.int64), np.full(count, -1, np.int64)
                at[rows], length[rows] = branch.step.span(part)
                cursors.rejoin(rows, part)
                return branch.step.made(cursors, at, length)
            parts.append((rows, branch.step.read(part)))
            cursors.rejoin(rows, part)
        return scattered(parts, count, self.type)

    def skip(self, cursors: Cursors) -> None:
        which = self._which(cursors)
        for number, branch in enumerate(self.branches):
            rows = np.flatnonzero(which == number)
            if len(rows) and branch.step is not None:
                part = cursors.subset(rows)
                branch.step.skip(part)
                cursors.rejoin(rows, part)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        which = np.array([self._branch_of(value) for value in values], np.int64)
        parts = []
        for number, branch in enumerate(self.branches):
            chosen = np.flatnonzero(which == number)
            if not len(chosen):
                continue
            if branch.step is None:
                rows.fail(which == number, branch.why_not)
            elif not isinstance(branch.step, NullStep):
                raw = [_bare(values[row]) for row in chosen.tolist()]
                parts.append((chosen, branch.step.gather(raw, rows.subset(chosen))))
        return scattered(parts, len(values), self.type)

    def _which(self, cursors: Cursors) -> Numbers:
        octet = cursors.octet()
        bad = ((octet & 1) != 0) | (octet >= 2 * len(self.branches))
        cursors.fail(bad, f"{self.path} is none of the {len(self.branches)} types of its union")
        cursors.at += 1
        cursors.settle(self.path)
        return np.where(bad, 0, octet >> 1).astype(np.int64)

    def _is_optional(self) -> bool:
        return len(self.branches) == 2 and any(
            isinstance(branch.step, NullStep) for branch in self.branches
        )

    def _branch_of(self, value: object) -> int:
        """The branch by the name of a record, enum or fixed, else by the Python type."""
        for number, branch in enumerate(self.branches):
            if isinstance(value, tuple):
                if branch.node.name == value[0]:
                    return number
            elif type(value) in PYTHON_TYPES.get(branch.node.kind, ()):
                return number
        raise ValueError(f"{self.path} does not match any type of its union")


def _bare(value: object) -> object:
    return value[1] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class ItemsStep:
    """An array or map: blocks of items, each preceded by their number, and a zero at the end."""

    path: str
    type: pa.DataType
    step: ColumnStep
    key: BytesStep | None = None
    """The step of keys, for a map."""

    @property
    def vector(self) -> bool:
        return self.step.vector and (self.key is not None or takes_room(self.step))

    def read(self, cursors: Cursors) -> pa.Array:
        return self._read(cursors, keep=True)

    def skip(self, cursors: Cursors) -> None:
        self._read(cursors, keep=False)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        many = cast("Sequence[list[object] | dict[str, object]]", values)
        counts = np.array([len(each) for each in many], np.int64)
        flat: list[object] = []
        for each in many:
            flat.extend(each.values() if isinstance(each, dict) else each)
        inner = self.step.gather(flat, rows.subset(np.repeat(np.arange(len(many)), counts)))
        keys = pa.array([key for each in many if self.key for key in each], pa.string())
        return self._made(counts, keys, inner)

    def _read(self, cursors: Cursors, *, keep: bool) -> pa.Array:
        """Read one item of each record per round; block headers are read when they are reached."""
        left = np.zeros(len(cursors), np.int64)
        ended = np.zeros(len(cursors), np.bool_)
        places: list[Numbers] = []
        keys, items = [pa.nulls(0, pa.string())], [pa.nulls(0, self.step.type)]
        for _ in range(TURNS_MAX):
            rows = np.flatnonzero(~ended & (left == 0))
            part = cursors.subset(rows)
            left[rows] = self._block(part)
            ended[rows] = left[rows] == 0
            cursors.rejoin(rows, part)
            rows = np.flatnonzero(left)
            if not len(rows):
                break
            part = cursors.subset(rows)
            if keep:
                keys += [] if self.key is None else [self.key.read(part)]
                items.append(self.step.read(part))
                places.append(rows)
            else:
                self._skip_item(part)
            cursors.rejoin(rows, part)
            left[rows] = np.where(part.parked(), 0, left[rows] - 1)
        else:
            raise Uneven
        if not keep:
            return pa.nulls(len(cursors), self.type)
        owner = np.concatenate([np.zeros(0, np.int64), *places])
        order = pa.array(np.argsort(owner, kind="stable"))
        counts = np.bincount(owner, minlength=len(cursors)).astype(np.int64)
        names = keys[0]
        if self.key is not None:
            # A key that is not UTF-8 is null here; its record is already marked as bad.
            names = pa.concat_arrays(keys).take(order).fill_null("")
            _check_once(names, np.sort(owner))
        return self._made(counts, names, pa.concat_arrays(items).take(order))

    def _skip_item(self, cursors: Cursors) -> None:
        if self.key is not None:
            self.key.skip(cursors)
        self.step.skip(cursors)

    def _block(self, cursors: Cursors) -> Numbers:
        """The number of items; a negative number is followed by the block's size."""
        count = cursors.zigzag(self.path)
        sized = np.flatnonzero(count < 0)
        if len(sized):
            part = cursors.subset(sized)
            part.zigzag(self.path)
            cursors.rejoin(sized, part)
            count = np.abs(count)
        # An item has at least one byte, and so has the end of the blocks.
        bad = (count < 0) | (count > cursors.end - cursors.at)
        cursors.fail(bad, f"{self.path} has more items than bytes")
        return np.where(bad, 0, count)

    def _made(self, counts: Numbers, keys: pa.Array, items: pa.Array) -> pa.Array:
        bounds = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        if self.key is not None:
            return pa.MapArray.from_arrays(bounds, keys, items).cast(self.type)
        return pa.ListArray.from_arrays(bounds, items, type=self.type)


def _check_once(keys: pa.Array, owner: Numbers) -> None:
    """Uneven if a map has a duplicate key; fastavro then keeps the last one."""
    coded = keys.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    if len(np.unique(owner * max(len(coded.dictionary), 1) + codes)) != len(codes):
        raise Uneven


def takes_room(step: ColumnStep) -> bool:
    """Whether every value has at least one byte; otherwise the number of items is unbounded."""
    if isinstance(step, RecordStep):
        return any(takes_room(part.step) for part in step.parts)
    return not isinstance(step, NullStep) and not (isinstance(step, BytesStep) and step.size == 0)


@dataclass(frozen=True, slots=True)
class DroppedStep:
    """A type that the reader leaves out and that cannot be skipped with numpy."""

    type: pa.DataType
    vector: ClassVar[bool] = False

    def read(self, cursors: Cursors) -> pa.Array:
        raise AssertionError("a step without vector is not read")

    def skip(self, cursors: Cursors) -> None:
        raise AssertionError("a step without vector is not read")

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        raise AssertionError("a dropped field is not gathered")
