"""`spark_groups.iceberg_table`: an Iceberg table whose snapshots carry the fence.

The entries of each group are in a table property, and in the summary of every snapshot that this
package writes; one commit changes both. A rollback sets back the snapshot and not the property, so
the two differ. A commit requires that the current snapshot is the compared one, and the library
does not retry.

    spark-groups.fence.<group>   {"version": ..., "entries": {topic id: {partition: [start, next]}}}

The version is the sequence number of the group's last snapshot.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from spark_groups.errors import OptionsError, TableChangedError, TableError, needs
from spark_groups.fence.compare import NEW_CHECKPOINT, Decision
from spark_groups.fence.entries import Entry, FenceKey, TableState, holds, of_topics
from spark_groups.masking import Secrets
from spark_groups.spark.tables.column_types import IN_LAKES, TypeRules, table_schema
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.growth import evolves
from spark_groups.spark.tables.iceberg_errors import catalog_errors
from spark_groups.spark.tables.parquet_files import (
    STORE_REQUESTS_MAX,
    TARGET_FILE_BYTES,
    FileDetails,
    LakeTable,
    schemas_of,
)
from spark_groups.spark.tables.table import PREFIX, Attempt, Piece, described
from spark_groups.types import TopicId, parse_topic_id, topic_id_text

with needs("iceberg"):
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        NoSuchNamespaceError,
        NoSuchTableError,
        NotInstalledError,
    )
    from pyiceberg.io.pyarrow import (
        PyArrowFileIO,
        UnsupportedPyArrowTypeException,
        parquet_file_to_data_file,
    )
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.table import Table, TableProperties, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.types import DateType, TimestampType, TimestamptzType
    from requests import Session

    from spark_groups.spark.tables.iceberg_partitions import (
        PartitionTransforms,
        parsed,
        partition_of,
        refused,
        transforms_of,
    )

logger = logging.getLogger(__name__)
# Columns of bytes have no statistics on purpose: the library would warn of each file.
logging.getLogger("pyiceberg.io.pyarrow").addFilter(
    lambda record: "statistics missing" not in str(record.msg)
)

REST_WAIT_S: Final = 60.0
"""How long a REST catalog may take to accept a connection, and to send anything of its answer."""
FENCE: Final = "spark-groups.fence."
_BATCH: Final = "spark-groups.batch"
_PARTITION: Final = 3
"""The place of the partition in a file of the library."""
_OURS: Final = f"/{PREFIX}"
_RULES: Final = TypeRules(
    "Iceberg",
    {
        pa.int8(): pa.int32(),
        pa.int16(): pa.int32(),
        **{each: each for each in (*IN_LAKES, pa.time64("us"), pa.uuid())},
    },
    widens=True,
)
_NEW_TABLE: Final = {
    # Each commit writes a new metadata file: without these, a stream leaves one for each trigger.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def iceberg_table(
    identifier: str,
    catalog: str | Catalog | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    partition_by: str | Sequence[str] = (),
    target_file_bytes: int = TARGET_FILE_BYTES,
    compression: str = "zstd",
    evolve: str | None = None,
) -> IcebergTable:
    """Return an Iceberg table for `spark_groups.write_table`; the first batch may create it.

    Args:
        identifier: Its namespace and name, such as `lake.flights`.
        catalog: The catalog's name in the configuration of `pyiceberg`, or a loaded catalog; None:
            the configured default.
        properties: Properties of the catalog and its files, such as `uri`, `warehouse` and
            `s3.region`, in addition to the configuration of `pyiceberg`.
        partition_by: The values that a new table is partitioned by, as in Spark SQL: columns, and
            such as `day(ts)`, `bucket(16, id)` and `truncate(4, name)`.
        target_file_bytes: The size at which a task begins another file.
        compression: The compression of Parquet pages.
        evolve: `add`: a batch's new columns and wider types are added to the table; None: they are
            an error.

    Raises:
        OptionsError: `pyiceberg` is missing, or the catalog is not described, or `partition_by`
            has something else than transforms of Iceberg.
    """
    transforms = parsed((partition_by,) if isinstance(partition_by, str) else partition_by)
    if "." not in identifier:
        raise OptionsError(f"an Iceberg table is named <namespace>.<name>, not {identifier!r}")
    if not isinstance(catalog, Catalog):
        catalog = _loaded(identifier, catalog, properties or {})
    elif properties:
        raise OptionsError("pass properties with the name of a catalog, not with a loaded catalog")
    return IcebergTable(
        identifier, catalog, transforms, target_file_bytes, compression, evolves=evolves(evolve)
    )


def _loaded(
    identifier: str,
    name: str | None,
    properties: Mapping[str, str],
    load: Callable[..., Catalog] = load_catalog,
) -> Catalog:
    """Return the catalog of a table, loaded by the library or made by its class.

    Raises:
        OptionsError: It is not described, or needs another package.
    """
    secrets = Secrets.of(properties)
    try:
        with catalog_errors(identifier, secrets):
            catalog = load(name, **properties)
    except ValueError as error:
        raise OptionsError(
            f"the Iceberg catalog {name!r} is not known: {secrets.line(error)}"
        ) from secrets.cause(error)
    except (NotInstalledError, ModuleNotFoundError) as error:
        raise OptionsError(
            f"the Iceberg catalog {name!r} needs another package: {error}"
        ) from error
    session = getattr(catalog, "_session", None)
    if isinstance(session, Session):
        # The library gives its requests to a REST catalog no timeout, nor a setting for one.
        request = partial(session.request, timeout=REST_WAIT_S)
        session.request = request  # type: ignore[method-assign]
    return catalog


def _loaded_again(
    kind: type[Catalog],
    name: str,
    properties: Mapping[str, str],
    identifier: str,
    *given: Any,
    **named: Any,
) -> IcebergTable:
    return IcebergTable(identifier, _loaded(identifier, name, properties, kind), *given, **named)


@dataclass(frozen=True, slots=True)
class GroupFence:
    """The entries of one group.

    Args:
        version: The sequence number of the group's last snapshot.
        entries: The group's entries.
    """

    version: int = 0
    entries: Mapping[FenceKey, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, group_id: str, written: str | None) -> GroupFence:
        """Parse what the method `text` returned.

        Args:
            group_id: The group.
            written: The value in a property or a summary; None: there is none.
        """
        if written is None:
            return cls()
        found = json.loads(written)
        entries = {
            FenceKey(group_id, parse_topic_id(topic_id), int(partition)): Entry(*offsets)
            for topic_id, partitions in found["entries"].items()
            for partition, offsets in partitions.items()
        }
        return cls(found["version"], entries)

    def text(self) -> str:
        """Return the value for the property and the summary."""
        topics: dict[str, dict[str, list[int]]] = {}
        for key, entry in sorted(self.entries.items()):
            partitions = topics.setdefault(topic_id_text(key.topic_id), {})
            partitions[str(key.partition)] = [entry.start_offset, entry.next_offset]
        return json.dumps({"version": self.version, "entries": topics}, separators=(",", ":"))


def fence_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the fence of each group, as text, from table properties or a snapshot's summary.

    Args:
        properties: The properties or the summary.
    """
    return {
        name.removeprefix(FENCE): text
        for name, text in properties.items()
        if name.startswith(FENCE)
    }


def snapshot_texts(metadata: TableMetadata) -> tuple[dict[str, str], bool]:
    """Return the fence of each group in the last snapshot of this package, as text.

    Only the current snapshot and its ancestors count.

    Args:
        metadata: The table's metadata.

    Returns:
        The texts, and whether they are from a snapshot. If the needed snapshots have expired, they
        are from the table property, without groups whose last snapshot is no ancestor of the
        current one.
    """
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        if found := _summary_texts(snapshot):
            return found, True
        parent_id = snapshot.parent_snapshot_id
        parent = None if parent_id is None else metadata.snapshot_by_id(parent_id)
        # The expiry of a snapshot may remove its id from its child.
        if parent is None and snapshot.sequence_number != 1:
            return _remaining_texts(metadata), False
        snapshot = parent
    return {}, True


def _summary_texts(snapshot: Snapshot) -> dict[str, str]:
    return {} if snapshot.summary is None else fence_texts(snapshot.summary.additional_properties)


def _remaining_texts(metadata: TableMetadata) -> dict[str, str]:
    """Return the texts of the table property, without groups whose commit was rolled back."""
    texts = fence_texts(metadata.properties)
    for snapshot in metadata.snapshots:
        for group, text in _summary_texts(snapshot).items():
            is_its_own = GroupFence.of(group, text).version == snapshot.sequence_number
            if is_its_own and texts.get(group) == text:
                del texts[group]
    return texts


def versions(property_text: str | None, snapshot_text: str | None) -> tuple[int | None, int | None]:
    """Return the version of a group's last commit, and the one that the table was rolled back to.

    Args:
        property_text: The group's fence in the table property; None: there is none.
        snapshot_text: The group's fence in the snapshots; None: there is none.

    Returns:
        The two versions. The first is None if the group has not committed, the second if the table
        was not rolled back.
    """
    found = (GroupFence.of("", property_text).version, GroupFence.of("", snapshot_text).version)
    if property_text == snapshot_text:
        return (None if property_text is None else found[0]), None
    # Two texts of one version: a user has changed the property.
    restored_to = min(found) - 1 if found[0] == found[1] else min(found)
    return max(found), restored_to


class IcebergTable(LakeTable):
    """An Iceberg table with a fence; `iceberg_table` makes one, and loads its catalog."""

    def __init__(
        self,
        identifier: str,
        catalog: Catalog,
        transforms: PartitionTransforms | None,
        target_file_bytes: int,
        compression: str,
        *,
        evolves: bool = False,
    ) -> None:
        super().__init__(
            f"the Iceberg table {catalog.name}.{identifier}", target_file_bytes, compression
        )
        self._identifier = identifier
        self._catalog = catalog
        self._transforms = transforms
        self._evolves = evolves
        self._secrets = Secrets.of(catalog.properties)
        self._table: Table | None = None
        self._new_location = ""

    def __reduce__(self) -> tuple[Callable[..., IcebergTable], tuple[Any, ...]]:
        (identifier, catalog, *given), named = self._made_of
        # By its class: the properties of one that the application has made may name no type.
        arguments = type(catalog), catalog.name, dict(catalog.properties), identifier, *given
        return partial(_loaded_again, **named), arguments

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence.

        Raises:
            TableError: The table has format version 1, or was created again.
        """
        with self._lock:
            table = self._opened()
            if table is None:
                return TableState()
            texts = fence_texts(table.metadata.properties)
            entries = {
                key: entry
                for group, text in texts.items()
                for key, entry in GroupFence.of(group, text).entries.items()
            }
            written, is_known = snapshot_texts(table.metadata)
            if group_id in texts and not is_known:
                self._warn_of_expired(group_id)
            recorded, restored_to = versions(texts.get(group_id), written.get(group_id))
            return TableState(
                version=_version(table.metadata),
                is_there=True,
                entries=of_topics(entries, topic_ids),
                recorded_version=recorded,
                restored_to=restored_to,
            )

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add files and change entries, in one commit of the table."""
        written = [piece for piece in pieces if piece.rows]
        has_columns = described(pieces)
        if state.version is None and not has_columns:
            # There are no columns for a new table: a later batch creates it.
            return
        with self._lock:
            compared = None if self._table is None else _version(self._table.metadata)
            if compared != state.version:
                raise TableChangedError(f"another query of this application has written {self}")
            with catalog_errors(str(self), self._secrets, is_commit=True):
                transaction = self._begun(has_columns)
                try:
                    self._stage(transaction, attempt, written, decision)
                except OverflowError:
                    transaction = _without_bounds(self._begun(has_columns))
                    self._stage(transaction, attempt, written, decision)
                self._table = transaction.commit_transaction()

    def held(self, group_id: str, restored_to: int | None = None) -> dict[FenceKey, Entry]:
        """Return the group's entries in the version whose rows the table has.

        Raises:
            TableError: There is no such table, or the needed snapshots have expired; or
                `restored_to` is given, which the snapshots have.
        """
        if restored_to is not None:
            raise TableError(f"omit --restored-to: the snapshots of {self} have the version")
        with self._lock:
            table = self._existing()
        written, is_known = snapshot_texts(table.metadata)
        if not is_known and group_id not in written:
            raise TableError(
                f"the snapshots from before the rollback of {self} have expired, so its metadata do"
                f" not have the next offsets of the group {group_id!r}: find them in the rows, and"
                f" set all entries with: spark-groups table set-offsets {shlex.quote(group_id)}"
                " --table TABLE --topic TOPIC:PARTITION=OFFSET --backwards --execute; then run:"
                f" spark-groups reset-offsets {shlex.quote(group_id)} --from-table TABLE"
                f" --all-topics --execute; then {NEW_CHECKPOINT}"
            )
        return dict(GroupFence.of(group_id, written.get(group_id)).entries)

    def _committed_paths(self) -> set[str]:
        with self._lock:
            table = self._existing()
        manifests = {
            each.manifest_path: each
            for snapshot in table.metadata.snapshots
            for each in snapshot.manifests(table.io)
        }
        with ThreadPoolExecutor(STORE_REQUESTS_MAX) as pool:
            read = pool.map(lambda each: each.fetch_manifest_entry(table.io), manifests.values())
            paths = [entry.data_file.file_path for entries in read for entry in entries]
        # Names of attempts are unique; paths of one directory may begin in several ways.
        return {path[path.rindex(_OURS) + 1 :] for path in paths if _OURS in path}

    def _existing(self) -> Table:
        table = self._opened()
        if table is None:
            raise TableError(f"there is no table: {self}")
        return table

    def _opened(self) -> Table | None:
        try:
            with catalog_errors(str(self), self._secrets):
                table = self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            if self._table is not None:
                raise TableError(f"{self} was dropped; start the query again") from error
            return None
        if self._table is not None and table.metadata.table_uuid != self._table.metadata.table_uuid:
            raise TableError(f"{self} was dropped and created again; start the query again")
        if table.metadata.format_version < 2:
            raise TableError(
                f"{self} has format version 1, whose snapshots have no sequence numbers:"
                " ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '2')"
            )
        if table.metadata.format_version > 2:
            raise TableError(
                f"{self} has format version {table.metadata.format_version}, which this writer does"
                " not write, and a table cannot go back: write to one with format version 2"
            )
        if found := refused(table.spec(), table.schema()):
            raise TableError(
                f"{self} is partitioned by {', '.join(found)}: values of fields of structs, of"
                " double, of columns that are gone, and of transforms that pyiceberg does not know"
                " are not computed"
            )
        self._table = table
        return table

    def _warn_of_expired(self, group_id: str) -> None:
        if group_id not in self._warned_of:
            self._warned_of.add(group_id)
            logger.warning(
                "%s: the snapshots of the group %r have expired, and other writers have added"
                " snapshots: a rollback of the table before these cannot be detected",
                self,
                group_id,
            )

    def _data(self) -> tuple[fs.SubTreeFileSystem, str]:
        with self._lock:
            location, io = self._place()
        scheme, netloc, path = PyArrowFileIO.parse_location(location, io.properties)
        store = fs.LocalFileSystem() if scheme == "file" else io.fs_by_scheme(scheme, netloc)
        return fs.SubTreeFileSystem(path, store), f"{location}/"

    def _place(self) -> tuple[str, PyArrowFileIO]:
        table = self._table
        if table is None:
            # The catalog chooses the location of a new table; this transaction is not committed.
            with catalog_errors(str(self), self._secrets):
                table = self._new_table(Schema())._table
            self._new_location = table.location()
        return table.location_provider().data_path, PyArrowFileIO(table.io.properties)

    def _new_table(self, schema: Schema | pa.Schema) -> Transaction:
        namespace = Catalog.namespace_from(self._identifier)
        if not self._catalog.namespace_exists(namespace):
            try:
                self._catalog.create_namespace(namespace)
            except Exception:
                # Another writer may have created it meanwhile; the error depends on the catalog.
                if not self._catalog.namespace_exists(namespace):
                    raise
        spec = UNPARTITIONED_PARTITION_SPEC
        if self._transforms is not None and len(schema):
            schema = assign_fresh_schema_ids(self._catalog._convert_schema_if_needed(schema))
            spec = self._transforms.new_spec(schema)
        return self._catalog.create_table_transaction(
            self._identifier, schema, self._new_location or None, spec, properties=_NEW_TABLE
        )

    def _begun(self, pieces: Sequence[Piece]) -> Transaction:
        """Return a transaction on the compared table, or one that creates the table.

        It also adds the new columns of a batch.

        Raises:
            TableError: A table cannot have the columns of these files.
        """
        new = self._columns().check_staged(schemas_of(pieces))
        if self._table is None:
            return self._new_table(pa.schema(new))
        transaction = _TriedOnce.of(self._table).transaction()
        if new:
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema(new))
        return transaction

    def _columns(self) -> TableColumns:
        if self._table is None:
            return TableColumns(
                str(self), _RULES, transforms=self._transforms, evolves=self._evolves
            )
        columns, metadata = self._table.schema(), self._table.metadata
        transforms = transforms_of(self._table.spec(), columns)
        had = {name for schema in metadata.schemas for name in schema.column_names}
        return TableColumns(
            str(self),
            _RULES,
            table_schema(columns.as_arrow()),
            transforms=transforms,
            evolves=self._evolves,
            # Names bind columns to files; the library gives a name to the newest column of it.
            gone=frozenset(had.difference(columns.column_names)),
        )

    def _stage(
        self,
        transaction: Transaction,
        attempt: Attempt,
        pieces: Sequence[Piece],
        decision: Decision,
    ) -> None:
        """Put files and entries into a transaction.

        Raises:
            TableChangedError: An entry has changed since the comparison.
            TableError: The files do not fit the table.
        """
        metadata = transaction.table_metadata
        texts = fence_texts(metadata.properties)
        entries = GroupFence.of(attempt.group_id, texts.get(attempt.group_id)).entries
        if not holds(decision.changes, entries.get):
            raise TableChangedError(f"another writer has changed the entries of {self}")
        changed = {**entries, **{each.key: each.entry for each in decision.changes}}
        fence = GroupFence(metadata.next_sequence_number(), changed).text()
        # The entries of other groups are repeated, so that a rollback of their rows stays visible.
        written, _ = snapshot_texts(metadata)
        carried = {**written, attempt.group_id: fence}
        summary = {f"{FENCE}{group}": text for group, text in carried.items()}
        transaction.set_properties({f"{FENCE}{attempt.group_id}": fence})
        try:
            self._add(transaction, pieces, {**summary, _BATCH: str(attempt.batch_id)})
        except FileNotFoundError as error:
            raise TableError(
                f"{self} lacks {error.filename or error}, which a task has written: the driver and"
                " all executors have to share the warehouse"
            ) from error
        except (UnsupportedPyArrowTypeException, ValueError) as error:
            raise TableError(
                f"the batch does not fit {self}: {error}. Change the transform, or the table with"
                " ALTER TABLE"
            ) from error

    def _add(
        self, transaction: Transaction, pieces: Sequence[Piece], summary: dict[str, str]
    ) -> None:
        """Add files, as the library does, but to the partitions that tasks have found."""
        metadata = transaction.table_metadata
        schema = metadata.schema()
        if metadata.name_mapping() is None:
            mapping = schema.name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        # Without a spec: the library would take a partition's value from least and largest values.
        no_spec = {"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": 0}
        of_library = transaction.table_metadata.model_copy(update=no_spec)
        read = partial(parquet_file_to_data_file, transaction._table.io, of_library)
        with ThreadPoolExecutor(STORE_REQUESTS_MAX) as pool:
            files = [*pool.map(read, (each.name for each in pieces))]
        specs = sorted(metadata.partition_specs, key=lambda each: each != metadata.spec())
        with transaction._append_snapshot_producer(summary) as snapshot:
            for file, piece in zip(files, pieces, strict=True):
                values = FileDetails.of(piece).partition_values
                found = partition_of(values, specs, schema)
                if found is None:
                    raise TableError(
                        f"{self} was created by another writer with another partition_by than"
                        f" {[*values]}, by which the files are split: give the same to every"
                        " application that writes the table, and start the query again"
                    )
                spec, file[_PARTITION] = found
                file.spec_id = spec.spec_id
                snapshot.append_data_file(file)
                if spec.spec_id != transaction.table_metadata.default_spec_id:
                    # It has changed since the files were split; theirs is as valid.
                    table, now = transaction._table, {"default_spec_id": spec.spec_id}
                    table.metadata = table.metadata.model_copy(update=now)


def _without_bounds(transaction: Transaction) -> Transaction:
    """Have a transaction add files without least and largest values of columns with times.

    Python has no times outside the years 1 to 9999, but Parquet has. This changes only the metadata
    that the commit begins with.
    """
    metadata = transaction._table.metadata
    counted = {
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{field_.name}": "counts"
        for field_ in transaction.table_metadata.schema().fields
        if isinstance(field_.field_type, DateType | TimestampType | TimestamptzType)
    }
    transaction._table.metadata = metadata.model_copy(
        update={"properties": {**metadata.properties, **counted}}
    )
    return transaction


def _version(metadata: TableMetadata) -> int:
    """Return the sequence number of the current snapshot, which no other snapshot has."""
    snapshot = metadata.current_snapshot()
    return 0 if snapshot is None else snapshot.sequence_number or 0


class _Transaction(Transaction):
    """A transaction that computes the table's metadata once for each of its changes.

    The library computes it at each access, about 20 times for a commit, and copies all snapshots.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._computed: TableMetadata | None = None
        self._computed_of: tuple[object, object] = (None, None)

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the changes so far."""
        base, updates = self._table.metadata, self._updates
        is_same = self._computed_of[0] is base and self._computed_of[1] is updates
        if self._computed is None or not is_same:
            self._computed = super().table_metadata
            self._computed_of = (base, updates)
        return self._computed


class _TriedOnce(Table):
    """A table whose commits the library does not retry: a retry would not compare entries.

    A gateway may have sent an accepted commit twice, and reported the refusal of the second
    request. The library deletes the manifests of a commit that it takes for failed; with this error
    it keeps them, because the table may need them.
    """

    @classmethod
    def of(cls, table: Table) -> _TriedOnce:
        """Return the same table, without retries of commits."""
        return cls(
            table.name(),
            table.metadata,
            table.metadata_location,
            table.io,
            table.catalog,
            table.config,
        )

    def transaction(self) -> Transaction:
        """Return a transaction on it."""
        return _Transaction(self)

    def _do_commit(
        self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
    ) -> None:
        try:
            super()._do_commit(updates, requirements)
        except CommitFailedException as error:
            name = ".".join((self.catalog.name, *self.name()))
            secrets = Secrets.of(self.catalog.properties)
            raise TableChangedError(
                f"another writer has committed to the Iceberg table {name}: {secrets.line(error)}"
            ) from secrets.cause(error)
