"""Unix sockets that are seen only while somebody listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from spark_groups.runtime.private_socket import connect_to, end_listening, listen_at


def test_a_socket_takes_connections_until_its_end_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sockets" / "one.sock"
    listener = listen_at(path, 1)
    assert os.listdir(path.parent) == ["one.sock"]
    connect_to(path, 5.0).close()
    end_listening(listener, path)
    assert os.listdir(path.parent) == []
    with pytest.raises(FileNotFoundError):
        connect_to(path, 5.0)


def test_a_socket_may_lie_in_a_directory_with_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 120) / "one.sock"
    listener = listen_at(path, 1)
    with connect_to(path, 5.0) as connection:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"hello")
            assert connection.recv(5) == b"hello"
    end_listening(listener, path)
    assert os.listdir(path.parent) == []


def test_a_socket_is_not_seen_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    listen = socket.socket.listen

    def look_and_listen(listener: socket.socket, backlog: int) -> None:
        seen.extend(path.name for path in tmp_path.glob("*.sock"))
        listen(listener, backlog)

    monkeypatch.setattr(socket.socket, "listen", look_and_listen)
    path = tmp_path / "one.sock"
    end_listening(listen_at(path, 1), path)
    assert seen == []


def test_a_socket_whose_process_is_gone_is_removed_by_who_meets_it(tmp_path: Path) -> None:
    path = tmp_path / "one.sock"
    listen_at(path, 1).close()
    with pytest.raises(ConnectionRefusedError):
        connect_to(path, 5.0)
    assert not path.exists()
