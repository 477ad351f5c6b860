"""How a writer's values become a reader's: Avro's schema resolution, as a tree of steps.

Source: the specification of Apache Avro 1.12, Schema Resolution. Where a union has several branches
that a value can become, the same type wins over a promotion, as in Avro's Java library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.arrow_types import members_of
from spark_groups.formats.avro.instructions import LENGTH, REST, Op, Store
from spark_groups.formats.avro.schema import (
    NULL,
    AvroType,
    Enumeration,
    Field,
    Items,
    Primitive,
    Record,
    TooLargeError,
    Union,
    described,
    kind_of,
    varint,
)
from spark_groups.values import dataclass

STEPS_MAX: Final = 200_000
"""The most pairs of types that are compared."""


@dataclass(frozen=True, slots=True)
class ReadValue:
    """Read a value of one column.

    Args:
        op: The instruction.
        x: Its number.
        y: Its other number.
        symbols: What each number of an enum becomes; None: the record is refused.
    """

    op: Op
    x: int = 0
    y: int = 0
    symbols: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadNull:
    """The value is null, and has no bytes."""


@dataclass(frozen=True, slots=True)
class ReadItems:
    """Read an array, or a map with a key before each item."""

    item: Step
    is_map: bool


@dataclass(frozen=True, slots=True)
class ReadFields:
    """Read a record's fields in the writer's order; those of index -1 are skipped."""

    fields: tuple[tuple[int, Step], ...]


@dataclass(frozen=True, slots=True)
class ReadBranch:
    """Read a union: the step of the branch that is written."""

    branches: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ReadMember:
    """Read a value of the reader's union: one member of a struct, whose others are null."""

    index: int
    step: Step


@dataclass(frozen=True, slots=True)
class Default:
    """Read a default: its bytes, and how the reader reads its own values."""

    octets: bytes
    step: Step


@dataclass(frozen=True, slots=True)
class Refuse:
    """The reader has no type for this branch: the record is refused."""


Step = ReadValue | ReadNull | ReadItems | ReadFields | ReadBranch | ReadMember | Default | Refuse


def resolve(writer: AvroType, reader: AvroType) -> Step:
    """Return how values of a writer's schema become those of a reader's.

    Args:
        writer: The writer's type.
        reader: The reader's, with its defaults.

    Raises:
        SchemaError: No value can; the message names the path.
    """
    path = getattr(reader, "name", "") or "the schema"
    try:
        return _Resolution().step(writer, reader, path)
    except TooLargeError as error:
        raise SchemaError(f"{path}: {error}") from None


class _Resolution:
    """One comparison of two schemas, which has a limit."""

    def __init__(self) -> None:
        self._steps = 0

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise TooLargeError("the schemas have too many unions to compare")

    def step(self, writer: AvroType, reader: AvroType, path: str) -> Step:
        """Return how values of a type become those of another."""
        self._count(1)
        if isinstance(writer, Union):
            return self._branches(writer, reader, path)
        if isinstance(reader, Union):
            return self._into_union(writer, reader, path)
        is_map = isinstance(writer, Items) and writer.is_map
        if isinstance(writer, Items) and isinstance(reader, Items) and reader.is_map == is_map:
            below = path + ("{}" if is_map else "[]")
            return ReadItems(self.step(writer.item, reader.item, below), is_map)
        if isinstance(writer, Record) and isinstance(reader, Record):
            _check_names(writer, reader, path)
            return self._fields(writer, reader, path)
        if isinstance(writer, Enumeration) and isinstance(reader, Enumeration):
            _check_names(writer, reader, path)
            known = {symbol: symbol for symbol in reader.symbols}
            symbols = tuple(known.get(each, reader.default) for each in writer.symbols)
            return ReadValue(Op.ENUM, symbols=symbols)
        if isinstance(writer, Primitive) and isinstance(reader, Primitive):
            return _value(writer, reader, path)
        raise _mismatch(writer, reader, path)

    def _branches(self, writer: Union, reader: AvroType, path: str) -> Step:
        steps: list[Step] = []
        problems = []
        for branch in writer.branches:
            try:
                steps.append(self.step(branch, reader, path))
            except SchemaError as error:  # noqa: PERF203
                problems.append(error)
                steps.append(Refuse())
        if len(problems) == len(steps):
            raise problems[0]
        return ReadBranch(tuple(steps))

    def _into_union(self, writer: AvroType, reader: Union, path: str) -> Step:
        if writer == NULL and NULL in reader.branches:
            return ReadNull()
        members = members_of(reader)
        self._count(len(members))
        for index in _candidates(writer, members):
            try:
                step = self.step(writer, members[index], path)
            except SchemaError:
                continue
            return ReadMember(index, step) if len(members) > 1 else step
        raise _mismatch(writer, reader, path)

    def _fields(self, writer: Record, reader: Record, path: str) -> Step:
        names = {field.name for field in writer.fields}
        # A name wins over any alias, whichever field comes first.
        targets = {
            field.name: index for index, field in enumerate(reader.fields) if field.name in names
        }
        missing = []
        for index, field in enumerate(reader.fields):
            if field.name in names:
                continue
            free = (each for each in field.aliases if each in names and each not in targets)
            name = next(free, None)
            if name is None:
                missing.append((index, field))
            else:
                targets[name] = index
        steps: list[tuple[int, Step]] = []
        for field in writer.fields:
            index = targets.get(field.name, -1)
            if index < 0:
                steps.append((-1, _skipped(field.type)))
            else:
                below = reader.fields[index]
                steps.append((index, self.step(field.type, below.type, f"{path}.{below.name}")))
        steps += [(index, self._default(field, f"{path}.{field.name}")) for index, field in missing]
        return ReadFields(tuple(steps))

    def _default(self, field: Field, path: str) -> Step:
        if field.default is None:
            raise SchemaError(f"{path}: the writer's schema lacks the field, which has no default")
        branches = field.type.branches if isinstance(field.type, Union) else ()
        if NULL in branches and field.default == varint(branches.index(NULL)):
            return ReadNull()
        return Default(field.default, self.step(field.type, field.type, path))


def _mismatch(writer: AvroType, reader: AvroType, path: str) -> SchemaError:
    return SchemaError(
        f"{path}: {described(writer)} of the writer cannot become {described(reader)}"
    )


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _check_names(
    writer: Record | Enumeration | Primitive, reader: Record | Enumeration | Primitive, path: str
) -> None:
    if _simple(writer.name) not in map(_simple, (reader.name, *reader.aliases)):
        raise SchemaError(
            f"{path}: the writer's type is {writer.name}, which is neither {reader.name} nor an"
            " alias of it"
        )


def _candidates(writer: AvroType, members: tuple[AvroType, ...]) -> Iterator[int]:
    """Return the members that a value may become, best first: of its name, its type, any."""
    name, kind = getattr(writer, "name", ""), kind_of(writer)

    def rank(index: int) -> int:
        member = members[index]
        if kind_of(member) != kind:
            return 2
        names = (getattr(member, "name", ""), *getattr(member, "aliases", ()))
        return 0 if name in names else 1

    order = sorted(range(len(members)), key=rank)
    # A member of another type is only for promotions.
    return (i for i in order if rank(i) < 2 or (isinstance(writer, Primitive) and kind != "fixed"))


_PROMOTED: Final = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "double": {"double"},
}
_STORES: Final = {
    "int": Store.INT32,
    "long": Store.INT64,
    "float": Store.FLOAT32,
    "double": Store.FLOAT64,
}
_OCTETS: Final = ("bytes", "string")


def _value(writer: Primitive, reader: Primitive, path: str) -> Step:
    """Return how a value without parts becomes one, perhaps by a promotion."""
    if reader.type in _PROMOTED.get(writer.type, ()):
        return ReadValue(Op[writer.type.upper()], 0, _store(writer, reader, path))
    is_fixed = writer.type == reader.type == "fixed" and writer.size == reader.size
    if is_fixed:
        _check_names(writer, reader, path)
    if is_fixed or (writer.type in _OCTETS and reader.type in _OCTETS):
        size = writer.size if is_fixed or writer.size == REST else LENGTH
        if reader.logical != "decimal":
            return ReadValue(Op.BYTES, size, int(reader.type == "string"))
        if writer.logical == "decimal" and writer.scale != reader.scale:
            raise SchemaError(
                f"{path}: a decimal of scale {writer.scale} of the writer cannot become one of"
                f" scale {reader.scale}"
            )
        return ReadValue(Op.DECIMAL, size, reader.precision)
    if writer.type == reader.type == "boolean":
        return ReadValue(Op.BOOLEAN)
    raise _mismatch(writer, reader, path)


def _store(writer: Primitive, reader: Primitive, path: str) -> Store:
    """Return what a number becomes; times with the writer's unit, or else the reader's."""
    store = _STORES[reader.type]
    if reader.logical in ("", "date", "time-millis") or store is not Store.INT64:
        return store
    unit = (writer.logical or reader.logical).rpartition("-")[2]
    own = "nanos" if reader.logical.endswith("nanos") else "micros"
    if unit == "millis" and own == "micros":
        return Store.MILLIS_TO_MICROS
    is_timestamp = "timestamp" in reader.logical and own == "micros"
    if unit == own or (unit == "date" and not is_timestamp):
        return store
    raise SchemaError(f"{path}: {writer.logical} of the writer cannot become {reader.logical}")


def _skipped(writer: AvroType) -> Step:  # noqa: PLR0911
    """Return how a value that the reader does not want is passed."""
    if isinstance(writer, Union):
        return ReadBranch(tuple(map(_skipped, writer.branches)))
    if isinstance(writer, Items):
        return ReadItems(_skipped(writer.item), writer.is_map)
    if isinstance(writer, Record):
        return ReadFields(tuple((-1, _skipped(field.type)) for field in writer.fields))
    if isinstance(writer, Enumeration):
        return ReadValue(Op.INT, 0, Store.NOTHING)
    sizes = {"boolean": 1, "float": 4, "double": 8, "fixed": writer.size}
    sizes |= dict.fromkeys(_OCTETS, LENGTH)
    if writer.type in sizes:
        return ReadValue(Op.BYTES, sizes[writer.type])
    if writer.type == "null":
        return ReadNull()
    return ReadValue(Op[writer.type.upper()], 0, Store.NOTHING)
