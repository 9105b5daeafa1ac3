"""Plans how values of a writer's schema are read with a reader's: Avro's "Schema Resolution".

Names of records are compared only if a union has several; elsewhere there is no choice.
"""

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from headrace.schemas.avro.branches import DroppedStep, ItemsStep, UnionBranch, UnionStep
from headrace.schemas.avro.steps import (
    BooleanStep,
    BytesStep,
    ColumnStep,
    EnumStep,
    FloatStep,
    IntegerStep,
    MemberStep,
    NullStep,
    RecordStep,
    WrittenField,
)
from headrace.schemas.avro.tree import AvroField, AvroNode, merged, spark_type, without_null
from headrace.schemas.columns.cursors import Reasons, Rows
from headrace.schemas.errors import InvalidSchema, Unreadable

# The types that can be read as the type on the left. Reading a long as an int is not in Avro: it
# lets a query continue after its subject widens a field, as long as the values fit.
WHOLE = {"int": {"int", "long"}, "long": {"int", "long"}}
REAL = {"float": {"int", "long", "float"}, "double": {"int", "long", "float", "double"}}


def arrow_type(node: AvroNode) -> pa.DataType:
    """The Arrow type that Spark expects for it."""
    return to_arrow_type(spark_type(node), timezone="UTC")


def resolve(writer: AvroNode, reader: AvroNode, path: str = "") -> ColumnStep:
    """The steps to read it; Unreadable with the field that cannot be read."""
    kind = arrow_type(reader)
    if writer.kind == "union":
        branches = [_branch(each, reader, path) for each in writer.branches]
        return UnionStep(_where(path), kind, tuple(branches))
    if reader.kind == "union":
        return _into_union(writer, reader, path, kind)
    if writer.kind == "null" and reader.kind == "null":
        return NullStep(kind)
    if writer.kind == reader.kind == "record":
        return _record(writer, reader, path, kind)
    if writer.kind == reader.kind and writer.items is not None and reader.items is not None:
        mark = "[]" if writer.kind == "array" else "{}"
        inner = resolve(writer.items, reader.items, f"{path}{mark}")
        key = BytesStep(_where(f"{path}.key"), pa.string()) if writer.kind == "map" else None
        return ItemsStep(_where(path), kind, inner, key)
    step = _single(writer, reader, _where(path), kind)
    if step is None:
        raise Unreadable(f"{_where(path)}: {_name(writer)} cannot be read as {_name(reader)}")
    return step


def _single(writer: AvroNode, reader: AvroNode, where: str, kind: pa.DataType) -> ColumnStep | None:
    if writer.kind in ("int", "long"):
        wide = WHOLE.get(reader.kind, set()) | REAL.get(reader.kind, set())
        if writer.kind in wide:
            # The unit of the numbers is that of the writer.
            unit = (writer.unit or reader.unit) if reader.unit else 0
            return IntegerStep(where, kind, "int" in (writer.kind, reader.kind), unit)
    if writer.kind in ("float", "double") and writer.kind in REAL.get(reader.kind, ()):
        return FloatStep(where, kind, 4 if writer.kind == "float" else 8)
    if writer.kind == reader.kind == "boolean":
        return BooleanStep(where, kind)
    if writer.kind in ("bytes", "string") and reader.kind in ("bytes", "string"):
        if writer.is_decimal and reader.is_decimal and writer.scale != reader.scale:
            return None
        return BytesStep(where, kind)
    if writer.kind == reader.kind == "fixed" and writer.size == reader.size:
        if writer.is_decimal and reader.is_decimal and writer.scale != reader.scale:
            return None
        return BytesStep(where, kind, writer.size)
    if writer.kind == reader.kind == "enum":
        spare = reader.default if reader.default in reader.symbols else None
        known = [each if each in reader.symbols else spare for each in writer.symbols]
        return EnumStep(where, kind, writer.symbols, tuple(known))
    return None


def _branch(writer: AvroNode, reader: AvroNode, path: str) -> UnionBranch:
    if writer.kind == "null" and not _takes_null(reader):
        why = f"{_where(path)} is null, which the reader's schema does not allow"
        return UnionBranch(writer, None, why)
    if writer.kind == "null":
        return UnionBranch(writer, NullStep(arrow_type(reader)))
    try:
        return UnionBranch(writer, resolve(writer, reader, path))
    except Unreadable as error:
        return UnionBranch(writer, None, str(error))


def _takes_null(reader: AvroNode) -> bool:
    return reader.kind == "null" or any(each.kind == "null" for each in reader.branches)


def _into_union(writer: AvroNode, reader: AvroNode, path: str, kind: pa.DataType) -> ColumnStep:
    if writer.kind == "null" and _takes_null(reader):
        return NullStep(kind)
    single = merged(reader)
    if single is not None:
        return resolve(writer, single, path)
    members = without_null(reader)
    # The type with the same name, then the same kind of type, then any that can read it.
    order = sorted(
        range(len(members)),
        key=lambda place: (
            not _same_name(writer, members[place]),
            writer.kind != members[place].kind,
        ),
    )
    problems = []
    for place in order:
        try:
            return MemberStep(kind, resolve(writer, members[place], path), place)
        except Unreadable as error:
            problems.append(str(error))
    raise Unreadable(problems[0])


def _same_name(writer: AvroNode, reader: AvroNode) -> bool:
    return writer.kind == reader.kind and (
        writer.short_name == reader.short_name or writer.name in reader.aliases
    )


def _record(writer: AvroNode, reader: AvroNode, path: str, kind: pa.DataType) -> ColumnStep:
    slots: dict[str, int] = {}
    written = {field.name for field in writer.fields}
    defaults = []
    for slot, field in enumerate(reader.fields):
        source = next((name for name in (field.name, *field.aliases) if name in written), None)
        place = f"{path}.{field.name}".lstrip(".")
        if source is not None:
            slots[source] = slot
        elif field.has_default:
            defaults.append((slot, _default(field, place)))
        else:
            raise Unreadable(f"{_where(place)} is missing, and the reader has no default for it")
    parts = []
    for field in writer.fields:
        place = f"{path}.{field.name}".lstrip(".")
        found = slots.get(field.name)
        step = (
            _dropped(field, place)
            if found is None
            else resolve(field.type, reader.fields[found].type, place)
        )
        parts.append(WrittenField(field.name, step, found))
    return RecordStep(kind, tuple(parts), tuple(defaults))


def _dropped(field: AvroField, place: str) -> ColumnStep:
    try:
        return resolve(field.type, field.type, place)
    except InvalidSchema:
        return DroppedStep(pa.null())


def _default(field: AvroField, place: str) -> pa.Array:
    """The reader's default as an array of length 1."""
    step = resolve(field.type, field.type, place)
    try:
        raw = _raw(field.default, field.type)
        reasons = Reasons(1)
        made = step.gather([raw], Rows(np.zeros(1, np.int64), reasons))
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise InvalidSchema(f"the default of {_where(place)} is not of its type: {error}") from None
    if bad := reasons.found():
        raise InvalidSchema(f"the default of {_where(place)}: {bad[0]}")
    return made


def _raw(default: object, node: AvroNode) -> object:
    """A default in the form in which fastavro reads values."""
    if node.kind == "union":
        branch = _branch_of_default(default, node)
        made = _raw(default, branch)
        return (branch.name, made) if branch.name else made
    if node.kind in ("bytes", "fixed"):
        return str(default).encode("latin-1")
    if node.kind in ("float", "double"):
        return float(default)  # type: ignore[arg-type]
    if node.kind == "array" and node.items is not None and isinstance(default, list):
        return [_raw(each, node.items) for each in default]
    if node.kind == "map" and node.items is not None and isinstance(default, dict):
        return {str(name): _raw(each, node.items) for name, each in default.items()}
    if node.kind == "record" and isinstance(default, dict):
        return {
            field.name: _raw(default.get(field.name, field.default), field.type)
            for field in node.fields
        }
    return default


def _branch_of_default(default: object, node: AvroNode) -> AvroNode:
    """The first branch, as in Avro, unless null shows that it is another one."""
    null = [each for each in node.branches if each.kind == "null"]
    if default is None and null:
        return null[0]
    return next((each for each in node.branches if each.kind != "null"), node.branches[0])


def _where(path: str) -> str:
    return f"field {path!r}" if path else "the value"


def _name(node: AvroNode) -> str:
    return node.name or node.kind
