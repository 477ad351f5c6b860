"""Queries on a secured cluster: what they read, and that no secret is shown anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from spark_groups.runtime.snapshot_sockets import read_snapshots
from tests.secured import CLIENT_SECRET, PASSWORDS, SecuredKafka
from tests.spark.queries import written_rows
from workshop.parts.applications import REPOSITORY
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import environment
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 200
KEY_PASSWORD = "key-secret-5772"
PAGES = (
    "jobs/",
    "stages/",
    "storage/",
    "environment/",
    "executors/",
    "SQL/",
    "StreamingQuery/",
    *(f"SQL/execution/?id={number}" for number in range(3)),
)
RESOURCES = ("environment", "jobs", "stages", "sql?details=true&planDescription=true&length=100")


@pytest.fixture
def queries(secured: SecuredKafka, topic_name: str, group_id: str) -> dict[str, dict[str, str]]:
    """Options of queries: a password and a client certificate, tokens, and a token provider."""
    servers = secured.kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"row", partition=each % 2) for each in range(ROWS)])
    key = secured.client.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode())
    )
    certificate = {
        "ssl.keystore.certificate.chain": secured.client.certificate_pem,
        "ssl.keystore.key": key.decode(),
        "ssl.key.password": KEY_PASSWORD,
    }
    settings = {
        "with_password": secured.login("SCRAM-SHA-512") | certificate,
        "with_tokens": secured.tokens(),
        "with_provider": secured.provided(3600, nonce=group_id)
        | {"sasl.oauthbearer.scope": "kafka"},
    }
    for user in ("alice", "bob"):
        secured.allow(user, "TOPIC", topic_name, "READ")
    found = {}
    for user, name, listener in (
        ("alice", "with_password", "LOGIN"),
        ("bob", "with_tokens", "LOGIN"),
        ("bob", "with_provider", "SHORT"),
    ):
        secured.allow(user, "GROUP", f"{group_id}-{name}", "READ")
        found[name] = {
            "kafka.bootstrap.servers": secured.kafka.listener(listener),
            "kafka.group.id": f"{group_id}-{name}",
            "subscribe": topic_name,
            "startingOffsets": "earliest",
            **{f"kafka.{key}": value for key, value in settings[name].items()},
        }
    return found


@pytest.fixture
def application(tmp_path: Path, queries: dict[str, dict[str, str]]) -> Iterator[Path]:
    """The directory of a running application with both queries."""
    (tmp_path / "queries.json").write_text(json.dumps(queries))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.secured_application", str(tmp_path)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(PYSPARK_PYTHON=sys.executable),
        )
    try:
        yield tmp_path
    finally:
        (tmp_path / "stop").touch()
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, 9)
            process.wait(300)


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=300) as answer:
        return answer.read().decode(errors="replace")


def shown_by_the_ui(directory: Path) -> dict[str, str]:
    """Return what the pages and the REST interface of the UI show."""
    ui = (directory / "ui").read_text()
    api = f"{ui}/api/v1/applications"
    (application,) = json.loads(fetched(api))
    found = {page: fetched(f"{ui}/{page}") for page in PAGES}
    return found | {each: fetched(f"{api}/{application['id']}/{each}") for each in RESOURCES}


def written_by(directory: Path) -> dict[str, str]:
    """Return every file that the application wrote, except its input."""
    return {
        str(path.relative_to(directory)): path.read_bytes().decode("latin-1")
        for path in directory.rglob("*")
        if path.is_file() and path.name != "queries.json"
    }


def test_rows_arrive_and_no_secret_is_shown(
    application: Path,
    queries: dict[str, dict[str, str]],
    secured: SecuredKafka,
    group_id: str,
) -> None:
    def failed() -> bool:
        return "the query with_" in (application / "log").read_text(errors="replace")

    for name in queries:
        wait_until(
            lambda name=name: failed() or len(written_rows(application / name)) == ROWS,
            400,
            f"all rows of the query {name}",
        )
        assert not failed(), (application / "log").read_text(errors="replace")[-6000:]
    shown = shown_by_the_ui(application)
    for name, options in queries.items():
        group = options["kafka.group.id"]
        wait_until(lambda group=group: list(read_snapshots(group)), what=f"snapshot of {name}")
        shown[f"snapshot of {name}"] = json.dumps(list(read_snapshots(group)))
    (application / "stop").touch()
    shown |= wait_until(lambda: ended(application), 400, "the end of the application")
    key_lines = secured.client.key_pem.splitlines()[1:-1]
    secrets = {
        "password": PASSWORDS["alice"],
        "key": key_lines[0],
        "last line of the key": key_lines[-2],
        "password of the key": KEY_PASSWORD,
        "jaas": 'ScramLoginModule required username="',
        "secret of the token client, and of the token provider": CLIENT_SECRET,
        "token": secured.issuer.token().split(".")[0],
    }
    leaks = [
        f"{what} in {place}: ...{text[max(0, text.index(secret) - 200) : text.index(secret)]}"
        for place, text in shown.items()
        for what, secret in secrets.items()
        if secret in text
    ]
    assert leaks == []
    provided = [process for process, nonce in secured.issuer.provided if nonce == group_id]
    assert len(provided) == len(set(provided)), "one call in each process"
    assert len(provided) > 1, "on the driver and on executors"
    # Options are shown there, except secrets.
    assert secured.kafka.listener("LOGIN") in shown["log"]
    assert any("with_tokens/checkpoint/offsets" in place for place in shown)
    assert any(place.startswith("events/") for place in shown)
    assert "with_password" in shown["sql?details=true&planDescription=true&length=100"]


def ended(directory: Path) -> dict[str, str]:
    """Return what an application wrote once its event log is complete."""
    found = written_by(directory)
    logs = [text for place, text in found.items() if place.startswith("events/")]
    return found if any("SparkListenerApplicationEnd" in text for text in logs) else {}
