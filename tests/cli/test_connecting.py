"""The options of every command, and how long a command may take; test_cli types them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from spark_groups.cli.connecting import Brokers, connects, named_brokers
from spark_groups.errors import BrokerUnreachableError
from tests.wire.listener import await_end, listening
from workshop.parts.waiting import SOON_S, wait_until


def run(*args: str) -> tuple[int, str, list[Any]]:
    """Run a command of two parameters; return its exit code, its output and what it was given."""
    given: list[Any] = []
    app = typer.Typer()

    @app.command()
    @connects
    def ask(
        what: str, brokers: Brokers, loudly: Annotated[bool, typer.Option("--loudly")] = False
    ) -> None:
        """Ask something."""
        given.extend((what, brokers, loudly))

    result = CliRunner().invoke(app, list(args), env={"COLUMNS": "200"})
    return result.exit_code, result.output, given


def test_a_command_gets_its_brokers_beside_its_own_parameters() -> None:
    code, _, given = run("why", "--bootstrap-server", "a:1,b:2", "--timeout", "3", "--loudly")
    assert (code, given) == (0, ["why", Brokers("a:1,b:2", 3.0), True])


def test_help_has_the_commands_words_and_every_option() -> None:
    code, output, _ = run("--help")
    assert code == 0
    for message in ("Ask something.", "--bootstrap-server", "--timeout", "--loudly"):
        assert message in output


def test_an_address_is_checked_before_the_command_runs() -> None:
    code, output, given = run("why", "--bootstrap-server", "nowhere")
    assert (code, given) == (2, [])
    assert "not host:port" in output


def test_brokers_without_options_are_not_secured() -> None:
    assert named_brokers("a:1").security is None


def test_a_cluster_that_hangs_is_cut_off_with_its_address() -> None:
    with listening(await_end) as port:
        began_s = time.monotonic()
        with (
            pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}"),
            Brokers(f"127.0.0.1:{port}", 0.5).cluster() as cluster,
        ):
            cluster.nodes()
        assert time.monotonic() - began_s < SOON_S


def test_all_requests_of_a_command_share_one_time() -> None:
    with listening(await_end) as port:
        brokers = Brokers(f"127.0.0.1:{port}", 0.2)

        def ask_late() -> None:
            with brokers.cluster() as cluster:
                cut_off = cluster._pool._stopped
                wait_until(cut_off.is_set, what="the end of the time for all answers")
                cluster.nodes()

        with pytest.raises(BrokerUnreachableError, match=r"within 0\.2 s"):
            ask_late()
