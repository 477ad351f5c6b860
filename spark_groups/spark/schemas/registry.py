"""Schemas from a registry that speaks Confluent's API, with confluent-kafka's client.

A registry that is away is asked again until a deadline, and the wait is logged. One that refuses,
or that answers something else than a schema, is not asked again. Ids never change their meaning,
so a process looks each one up once.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from spark_groups.errors import NotInstalledError, SchemaLookupError, UnknownSchemaIdError
from spark_groups.formats.avro.schema import TEXT_BYTES_MAX, with_references
from spark_groups.masking import Secrets
from spark_groups.spark.schemas.registry_settings import LOGIN
from spark_groups.spark.schemas.row_formats import RegistryAccess, SchemaVersion
from spark_groups.values import dataclass

_log = logging.getLogger(__name__)

IDS_MAX: Final = 2_000
"""How many schemas a process keeps."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""How many bytes of schemas a process keeps."""
REFERENCES_MAX: Final = 200
"""How many schemas one schema may refer to, directly or not."""
REQUEST_S: Final = 10.0
"""How long a request may take to connect, and how long its answer may pause."""
UNKNOWN_S: Final = 2.0
"""How long an id counts as unknown without another request."""
UNKNOWN_IDS_S: Final = 10.0
"""How long an unknown id counts towards the limits below."""
UNKNOWN_IDS_MAX: Final = 200
"""How many ids may be unknown before others are refused without a request."""
_LATE_IDS_MAX: Final = 3
"""How many unknown ids are asked for again: a hostile topic has one in each record."""
_LATE_PAUSES_S: Final = (0.5, 1.0)
"""When: a follower of a registry has a new id some moments after the leader."""
_UNANSWERED_MAX: Final = 8
"""How many requests may still run after their deadline."""
_CONTEXT: Final = re.compile(r":\.[^:]*:")
"""In front of a subject that is not in the registry's default context."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_SAY_EVERY_S: Final = 30.0
_UNKNOWN_CODES: Final = frozenset({40401, 40402, 40403})
"""Confluent's codes for a subject, a version or an id that does not exist."""
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED: Final = frozenset({401, 403})
Result = TypeVar("Result")
_Key = tuple[str, int]
"""The context of a subject, which is empty for the default one, and an id."""


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema of a subject.

    Args:
        text: The schema, with those that it refers to.
        schema_id: The registry's id.
        version: The number of the version; None: it was found by id.
    """

    text: str
    schema_id: int
    version: int | None


class SchemaRegistry:
    """A registry, with the schemas that it has returned; for one thread.

    Args:
        access: How it is reached.
        kind: Of its schemas: AVRO, whose texts then have those that they refer to in them, or
            PROTOBUF.
    """

    def __init__(self, access: RegistryAccess, kind: str = "AVRO") -> None:
        self._access = access
        self._kind = kind
        self._secrets = _secrets_of(dict(access.settings))
        self._shown = ", ".join(access.urls)
        self._client: Any = None
        self._texts: OrderedDict[_Key, str] = OrderedDict()
        self._kept_bytes = 0
        self._unknown: OrderedDict[_Key, tuple[float, str]] = OrderedDict()
        self._is_flood_logged = False
        self._unanswered: list[threading.Thread] = []

    def schema_of_id(self, schema_id: int, timeout_s: float, subject: str = "") -> str:
        """Return a schema by its id, from the registry only the first time.

        Args:
            schema_id: The id, as in the frame of a record.
            timeout_s: How long to wait for a registry that is away, in seconds.
            subject: A subject in the registry's context in which the id has its meaning.

        Raises:
            UnknownSchemaIdError: There is none, or it is of another kind.
            SchemaLookupError: The registry did not answer in time, refuses, or answers otherwise.
        """
        key = _key(schema_id, subject)
        if key in self._texts:
            self._texts.move_to_end(key)
            return self._texts[key]
        what, now_s = f"schema id {schema_id}", time.monotonic()
        self._check_may_be_known(key, what, now_s)
        until_s = now_s + timeout_s
        try:
            found = self._ask_for_id(key, subject, what, until_s)
            text = self._text(found, what, until_s)
        except UnknownSchemaIdError as error:
            self._unknown[key] = time.monotonic(), str(error)
            self._unknown.move_to_end(key)
            raise
        self._unknown.pop(key, None)
        self.learn(schema_id, text, subject)
        return text

    def _check_may_be_known(self, key: _Key, what: str, now_s: float) -> None:
        """Refuse an id without a request, if it or too many others are unknown.

        Raises:
            UnknownSchemaIdError: It counts as unknown.
        """
        while self._unknown and now_s - next(iter(self._unknown.values()))[0] >= UNKNOWN_IDS_S:
            self._unknown.popitem(last=False)
        since_s, reason = self._unknown.get(key, (-UNKNOWN_S, ""))
        if now_s - since_s < UNKNOWN_S:
            raise UnknownSchemaIdError(reason)
        if len(self._unknown) < UNKNOWN_IDS_MAX:
            return
        reason = (
            f"{len(self._unknown)} schema ids of records were unknown to the schema registry"
            f" {self._shown} within {UNKNOWN_IDS_S:.0f} s, so that it is not asked for {what}"
        )
        if not self._is_flood_logged:
            self._is_flood_logged = True
            _log.warning("%s: such records may have no schema ids at all", reason)
        raise UnknownSchemaIdError(reason)

    def _ask_for_id(self, key: _Key, subject: str, what: str, until_s: float) -> Any:
        """Ask for an id; again, if a follower of the registry may not have it yet."""
        context, schema_id = key

        def ask(client: Any) -> Any:
            return client.get_schema(schema_id, subject_name=subject if context else None)

        is_late = key not in self._unknown and len(self._unknown) < _LATE_IDS_MAX
        for pause_s in _LATE_PAUSES_S if is_late else ():
            try:
                return self._ask(what, ask, until_s)
            except UnknownSchemaIdError:
                if time.monotonic() + pause_s >= until_s:
                    raise
            time.sleep(pause_s)
        return self._ask(what, ask, until_s)

    def learn(self, schema_id: int, text: str, subject: str = "") -> None:
        """Keep a schema that is known already."""
        key = _key(schema_id, subject)
        before = self._texts.pop(key, None)
        self._kept_bytes -= 0 if before is None else sys.getsizeof(before)
        self._texts[key] = text
        self._kept_bytes += sys.getsizeof(text)
        while len(self._texts) > 1 and (
            len(self._texts) > IDS_MAX or self._kept_bytes > KEPT_BYTES_MAX
        ):
            self._kept_bytes -= sys.getsizeof(self._texts.popitem(last=False)[1])

    def forget_unknown(self) -> None:
        """Ask again for ids that were unknown, such as for a task that runs again."""
        self._unknown.clear()

    def schema_of_subject(
        self, subject: str, version: SchemaVersion, timeout_s: float
    ) -> FoundSchema:
        """Return a version of a subject.

        Args:
            subject: The subject.
            version: Which one.
            timeout_s: How long to wait for a registry that is away, in seconds.

        Raises:
            SchemaLookupError: There is none, or the registry did not answer in time, refuses, or
                answers otherwise.
        """
        if version.schema_id is not None:
            text = self.schema_of_id(version.schema_id, timeout_s, subject)
            return FoundSchema(text, version.schema_id, None)
        until_s = time.monotonic() + timeout_s
        number = version.version or "latest"
        what = f"version {number} of subject {subject}"
        found = self._ask(what, lambda client: client.get_version(subject, number), until_s)
        if not isinstance(found.schema_id, int) or not isinstance(found.version, int):
            raise self._unusable(what, "it has no id or version")
        text = self._text(found.schema, what, until_s)
        self.learn(found.schema_id, text, subject)
        return FoundSchema(text, found.schema_id, found.version)

    def subjects(self, timeout_s: float) -> list[str]:
        """Return the names of all subjects.

        Args:
            timeout_s: How long to wait for a registry that is away, in seconds.

        Raises:
            SchemaLookupError: The registry did not answer in time, refuses, or answers otherwise.
        """
        until_s = time.monotonic() + timeout_s
        found: object = self._ask("subjects", lambda client: client.get_subjects(), until_s)
        if not isinstance(found, list):
            raise self._unusable("subjects", "it is no list")
        return [str(each) for each in found]

    def _text(self, schema: Any, what: str, until_s: float) -> str:
        """Return the text of a schema, with the schemas that it refers to in it."""
        kind = schema.schema_type or "AVRO"
        if kind != self._kind:
            raise UnknownSchemaIdError(f"{what} is of {kind}, not of {self._kind}")
        if not isinstance(schema.schema_str, str):
            raise self._unusable(what, "it has no schema")
        text: str = schema.schema_str
        is_whole = kind != "AVRO" or not schema.references
        found = {} if is_whole else self._references(schema, what, until_s)
        if len("".join((text, *found.values())).encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            raise UnknownSchemaIdError(f"{what} has more than {TEXT_BYTES_MAX} bytes")
        return with_references(text, found) if found else text

    def _references(self, schema: Any, what: str, until_s: float) -> dict[str, str]:
        """Return the texts of schemas to which a schema refers, by name.

        Raises:
            SchemaLookupError: One is missing, or the registry did not answer in time.
        """
        found: dict[str, str] = {}
        waiting = [*schema.references]
        while waiting:
            each = waiting.pop()
            if not isinstance(each.name, str):
                raise self._unusable(what, "the name of a reference is no text")
            if each.name in found:
                continue
            if len(found) == REFERENCES_MAX:
                raise self._unusable(what, f"it refers to more than {REFERENCES_MAX} schemas")
            try:
                registered = self._ask(
                    f"version {each.version} of subject {each.subject}, to which {what} refers",
                    partial(_referred, each),
                    until_s,
                )
            except UnknownSchemaIdError as error:
                # The id is known: a record is no reason.
                raise SchemaLookupError(str(error)) from None
            found[each.name] = str(registered.schema.schema_str)
            waiting += registered.schema.references or []
        return found

    def _ask(self, what: str, ask: Callable[[Any], Result], until_s: float) -> Result:
        """Ask until there is an answer.

        Args:
            what: The thing to ask for.
            ask: Asks a client.
            until_s: The deadline, on the monotonic clock.
        """
        pause_s, say_at_s, began_s = _FIRST_PAUSE_S, -1.0, time.monotonic()
        while True:
            try:
                return self._answer(ask, until_s)
            except Exception as error:
                problem = self._problem_to_wait_for(what, error)
            now_s = time.monotonic()
            if now_s + pause_s >= until_s:
                raise SchemaLookupError(
                    f"the schema registry {self._shown} did not return {what} within"
                    f" {until_s - began_s:.0f} s: {problem}"
                )
            if now_s >= say_at_s:
                say_at_s = now_s + _SAY_EVERY_S
                _log.warning(
                    "waiting up to %.0f s more for %s from the schema registry %s: %s",
                    *(until_s - now_s, what, self._shown, problem),
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _answer(self, ask: Callable[[Any], Result], until_s: float) -> Result:
        """Ask once, on a thread: an answer in small pieces may take any time.

        Raises:
            TimeoutError: There is no whole answer at the deadline.
            Exception: Any of the client.
        """
        if self._client is None:
            self._client = new_client(self._access, REQUEST_S)
        client, results, errors = self._client, list[Result](), list[Exception]()

        def run() -> None:
            try:
                results.append(ask(client))
            except Exception as error:
                errors.append(error)
            # The client's own caches have no limit for ids.
            client.clear_caches()

        self._unanswered = [each for each in self._unanswered if each.is_alive()]
        if len(self._unanswered) >= _UNANSWERED_MAX:
            raise TimeoutError(f"{_UNANSWERED_MAX} earlier requests still wait for their answers")
        thread = threading.Thread(target=run, name="schema registry", daemon=True)
        thread.start()
        thread.join(max(0.0, until_s - time.monotonic()))
        if thread.is_alive():
            self._client = None
            self._unanswered.append(thread)
            raise TimeoutError("the whole answer has not arrived in time")
        if errors:
            raise errors[0]
        return results[0]

    def _problem_to_wait_for(self, what: str, error: Exception) -> str:
        """Return why there is no answer yet; raise an error where waiting does not help.

        Raises:
            SchemaLookupError: The registry has answered, but not with a schema.
        """
        if isinstance(error, (SchemaLookupError, NotInstalledError)):
            raise error
        line, status = self._secrets.line(error), getattr(error, "http_status_code", None)
        # By name, because the client chooses between two libraries for HTTP.
        kinds = {each.__name__ for each in type(error).__mro__}
        if status == 404 and getattr(error, "error_code", None) in _UNKNOWN_CODES:
            raise UnknownSchemaIdError(
                f"the schema registry {self._shown} has no {what}: {line}"
            ) from None
        if status in _REFUSED:
            raise SchemaLookupError(
                f"the schema registry {self._shown} refuses to return {what}: {line}. Check"
                " schemaRegistry.basic.auth.user.info or schemaRegistry.bearer.auth.*, and the"
                " permissions of that user"
            ) from None
        if "CERTIFICATE_VERIFY_FAILED" in line:
            raise SchemaLookupError(
                f"the certificate of the schema registry {self._shown} is not trusted: {line}. Set"
                " schemaRegistry.ssl.ca.location"
            ) from None
        if status in _LATER or kinds & {"TransportError", "OSError", "OAuthTokenError"}:
            return line or type(error).__name__
        raise self._unusable(what, line or type(error).__name__) from None

    def _unusable(self, what: str, why: str) -> SchemaLookupError:
        return SchemaLookupError(
            f"the answer of {self._shown} for {what} is not that of a schema registry: {why[:300]}."
            " Check schemaRegistryUrl, which may need a path, such as /apis/ccompat/v7 of Apicurio"
        )


def new_client(access: RegistryAccess, request_s: float) -> Any:
    """Return confluent-kafka's client, which asks each address once.

    Args:
        access: How the registry is reached.
        request_s: How long one request may take.

    Raises:
        NotInstalledError: The extra is missing.
        SchemaLookupError: The client refuses a setting.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415
    except ImportError as error:
        raise NotInstalledError(
            f"a schema registry requires more packages ({error}): install spark-groups[avro]"
        ) from error
    settings: dict[str, Any] = dict(access.settings)
    if "bearer.auth.token" in settings:
        settings.setdefault("bearer.auth.credentials.source", "STATIC_TOKEN")
    if any(name.startswith("bearer.") for name in settings):
        # The client requires it; only Confluent's cloud reads it.
        settings.setdefault("bearer.auth.logical.cluster", "")
    limits = {"timeout": request_s, "max.retries": 0}
    try:
        return SchemaRegistryClient.new_client({"url": ",".join(access.urls), **settings, **limits})
    except Exception as error:
        line = _secrets_of(settings).line(error)
        raise SchemaLookupError(f"schemaRegistry.* cannot be used: {line}") from None


def _secrets_of(settings: Mapping[str, Any]) -> Secrets:
    password = str(settings.get(LOGIN, "")).partition(":")[2]
    return Secrets.of({**settings, "password": password})


def _referred(reference: Any, client: Any) -> Any:
    # A schema keeps its meaning when one that it refers to is deleted.
    return client.get_version(reference.subject, reference.version, deleted=True)


def _key(schema_id: int, subject: str) -> _Key:
    context = _CONTEXT.match(subject)
    return context.group() if context else "", schema_id


@lru_cache(maxsize=8)
def registry_of(access: RegistryAccess, kind: str = "AVRO") -> SchemaRegistry:
    """Return this process's registry, which the tasks of a load or run share."""
    return SchemaRegistry(access, kind)
