"""The page over HTTP: responses, refusals and limits."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_groups.cli import feeds as feeds_module
from spark_groups.cli import page_server
from spark_groups.cli.feeds import Feeds
from spark_groups.cli.page_server import PageServer, page_files
from spark_groups.monitoring.limited_server import is_loopback
from tests.cli.feeds_setup import Counting
from tests.cli.page_server_setup import documents
from workshop.parts.waiting import LONG_S, wait_until


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[PageServer]:
    feeds = Feeds(lambda key: Counting().open(), 0.05)
    server = PageServer(host, 0, feeds)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        feeds.close()
        server.server_close()


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serving() as started:
        yield started


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=LONG_S)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def test_the_page_loads_nothing_from_elsewhere(server: PageServer) -> None:
    content = {}
    for path, (content_type, expected) in page_files().items():
        answer = ask(server, path)
        content[path] = answer.read()
        assert (answer.status, answer.headers["Content-Type"]) == (200, content_type)
        assert content[path] == expected
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert {"/", "/page.css", "/page.js"} <= set(content)
    for text in content.values():
        found = re.findall(rb"(?:https?:)?//[\w.-]+\.\w+", text)
        assert set(found) <= {b"http://www.w3.org"}, found
    used = re.findall(rb'(?:from "\./|src="|href=")([\w.]+)"', b"".join(content.values()))
    assert {f"/{each.decode()}" for each in used} == set(content) - {"/"}


def test_nothing_of_a_stranger_is_parsed_as_html() -> None:
    for path, (_, content) in page_files().items():
        if path.endswith(".js"):
            assert not re.search(
                rb"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", content
            )


@pytest.mark.parametrize(
    "path", ["/nothing", "/../page.css", "/page.css/", "/__init__.py", "/index.html"]
)
def test_other_paths_are_not_there(server: PageServer, path: str) -> None:
    assert ask(server, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "BREW"])
def test_it_only_reads(server: PageServer, method: str) -> None:
    answer = ask(server, "/events?group=g", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


def test_a_stream_carries_documents_and_its_feed_ends_with_it(server: PageServer) -> None:
    answer = ask(server, "/events?group=flight%20readers")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = documents(answer)
    first, second = next(found)["number"], next(found)["number"]
    assert 0 < first < second
    assert server.feeds.keys() == ["flight readers"]
    answer.close()
    wait_until(lambda: server.feeds.keys() == [], what="the end of the feed")


def test_without_a_group_the_stream_is_that_of_all_groups(server: PageServer) -> None:
    answer = ask(server, "/events")
    assert next(documents(answer))
    assert server.feeds.keys() == [page_server.GROUP_LIST]
    answer.close()


def test_a_peer_that_has_gone_is_noticed_while_nothing_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "KEEP_ALIVE_S", 0.05)
    feeds = Feeds(lambda key: Counting().open(), 3600.0)
    server = PageServer("127.0.0.1", 0, feeds)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        answer = ask(server, "/events?group=g")
        assert next(documents(answer))
        answer.close()
        wait_until(lambda: feeds.keys() == [], what="the end of the feed")
    finally:
        server.shutdown()
        feeds.close()
        server.server_close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9999", 200),
        ("localhost:8848", 200),
        ("LOCALHOST", 200),
        ("[::1]:8848", 200),
        ("attacker.example", 403),
        ("attacker.example:8848", 403),
        ("localhost.attacker.example", 403),
        ("127.0.0.1.attacker.example", 403),
        ("192.168.1.1", 403),
        ("", 403),
        ("[", 403),
        ("attacker.example@127.0.0.1.x", 403),
    ],
)
def test_only_names_of_this_machine_lead_to_a_page_on_loopback(
    server: PageServer, host: str, status: int
) -> None:
    assert ask(server, "/page.css", Host=host).status == status
    if status == 403:
        assert ask(server, "/events?group=g", Host=host).status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin", "Accept": "text/event-stream"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://localhost:8848", "Host": "localhost:8848"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Accept": "text/event-stream"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://attacker.example", "Accept": "text/event-stream"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1", "Host": "localhost:8848"}, 403),
        ({"Accept": "image/avif,image/webp,*/*;q=0.8"}, 406),
        ({"Accept": "*/*"}, 406),
    ],
)
def test_pages_of_other_sites_start_no_watch(
    server: PageServer, headers: dict[str, str], status: int
) -> None:
    answer = ask(server, "/events?group=g", **headers)
    assert answer.status == status
    assert server.feeds.keys() == (["g"] if status == 200 else [])
    answer.close()


def test_watches_that_requests_start_are_limited(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "FEEDS_MAX", 2)
    streams = [ask(server, f"/events?group={each}") for each in ("a", "b", "c", "a")]
    assert [each.status for each in streams] == [200, 200, 503, 200]
    for each in streams:
        each.close()
    wait_until(lambda: server.feeds.keys() == [], what="the end of the feeds")
    assert ask(server, "/events?group=c").status == 200


def test_elsewhere_every_name_may_lead_to_it(server: PageServer) -> None:
    server.is_local = False
    assert ask(server, "/page.css", Host="groups.example").status == 200


def test_there_is_an_end_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "CONNECTIONS_MAX", 2)
    with serving() as server:
        streams = [ask(server, "/events?group=g") for _ in range(2)]
        for each in streams:
            assert next(documents(each))
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(server, "/page.css")
        for each in streams:
            each.close()

        def is_served() -> bool:
            try:
                return ask(server, "/page.css").status == 200
            except (http.client.HTTPException, ConnectionError):
                return False

        wait_until(is_served, what="a free connection")


def test_who_says_nothing_is_sent_away(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server.PageRequest, "timeout", 0.1)
    with socket.create_connection(server.server_address[:2], LONG_S) as silent:
        silent.sendall(b"GET /events")
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_addresses_are_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_page_is_a_part_of_the_package() -> None:
    folder = Path(page_server.__file__).parent / "page"
    names = {each.name for each in folder.iterdir()} - {"index.html"}
    assert {f"/{each}" for each in names} == set(page_files()) - {"/"}
