"""How the columns of a table grow: the fields and wider types that a batch may bring.

Executors import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from spark_groups.errors import OptionsError
from spark_groups.spark.tables.column_types import TypeMisfitError, TypeRules, plain_type

_WIDER: Final = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


def evolves(evolve: str | None) -> bool:
    """Return whether an application may add columns to its table.

    Args:
        evolve: What the application gives: `add`, or None.

    Raises:
        OptionsError: It is something else.
    """
    if evolve not in {None, "add"}:
        raise OptionsError(f"evolve is {evolve!r}: write 'add', or leave it out")
    return evolve is not None


def grown(given: pa.DataType, wanted: pa.DataType, rules: TypeRules, path: str) -> pa.DataType:
    """Return the type of a column once a batch has added to it what its kind of table allows.

    Args:
        given: The type of the rows, which may not fit the type that is returned.
        wanted: The type in the table.
        rules: The types of this kind of table.
        path: The column, with the fields that lead to a nested type.

    Raises:
        TypeMisfitError: The table cannot have a new field.
    """
    has = plain_type(given)
    if rules.listed is not None:
        return wanted
    if kinds.is_struct(has) and kinds.is_struct(wanted):
        return _grown_struct(has, wanted, rules, path)
    if kinds.is_list(has) and kinds.is_list(wanted):
        inner = grown(has.value_type, wanted.value_type, rules, f"{path}.element")
        return pa.list_(wanted.value_field.with_type(inner))
    if kinds.is_map(has) and kinds.is_map(wanted):
        item = grown(has.item_type, wanted.item_type, rules, f"{path}.value")
        if item != wanted.item_type:
            rules.stored(pa.map_(wanted.key_type, item), path)
        return pa.map_(wanted.key_type, wanted.item_field.with_type(item))
    return has if rules.widens and _is_wider(has, wanted) else wanted


def _grown_struct(
    given: pa.DataType, wanted: pa.DataType, rules: TypeRules, path: str
) -> pa.DataType:
    has, there = ({each.name: each.type for each in of} for of in (given, wanted))
    new = [name for name in has if name not in there]
    if new and (problems := rules.name_problems([*there, *new], path)):
        raise TypeMisfitError("; ".join(problems))
    old = [
        each.with_type(grown(has[name], each.type, rules, f"{path}.{name}"))
        if (name := each.name) in has
        else each
        for each in wanted
    ]
    added = [pa.field(name, rules.stored(has[name], f"{path}.{name}")) for name in new]
    return pa.struct([*old, *added])


def _is_wider(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column of Iceberg's may become one of a wider type."""
    if kinds.is_decimal(given) and kinds.is_decimal(wanted):
        return bool(given.scale == wanted.scale and given.precision > wanted.precision)
    return bool(_WIDER.get(wanted) == given)


def paths_in(fields: Iterable[pa.Field], parent: str = "") -> Iterator[str]:
    """Yield the names of columns, and of all that is inside them, as Iceberg writes them.

    Args:
        fields: The columns, in types of tables.
        parent: What their names begin with.
    """
    for each in fields:
        path, of = f"{parent}{each.name}", each.type
        yield path
        if kinds.is_struct(of):
            yield from paths_in(of, f"{path}.")
        elif kinds.is_list(of):
            yield from paths_in([of.value_field.with_name("element")], f"{path}.")
        elif kinds.is_map(of):
            names = {"key": of.key_field, "value": of.item_field}
            yield from paths_in([of_.with_name(name) for name, of_ in names.items()], f"{path}.")
