"""The demo: its parts, and the whole of it on a small part of the flights."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from demo.applications import ROOT, Application, ApplicationError, Process, parse_processes
from demo.check import Verdict, compare, parse_description
from demo.flights import Flight, as_flight, read_flights
from demo.picture import COLOURS, WIDTH, Caption, Look, animated
from demo.run import what_was_seen
from demo.spark_log import logged_files, parse_log
from demo.watch import Seen, as_line, as_ranges, as_screen
from spark_groups.broker.jvm_process import SupervisedJvm
from spark_groups.observation.frames import GroupHistory
from spark_groups.observation.views import view_group
from spark_groups.types import TopicPartition
from tests.observation.groups import ONE, TWO, member, read
from workshop.parts.processes import descendants, is_alive
from workshop.parts.waiting import wait_until

DEMO = (sys.executable, "-m", "demo.run")
ROWS = 20_000
GOOD = {0: (2, 2), 1: (1, 1)}
FLIGHTS = [Flight("N1", '{"id":0}'), Flight(None, '{"id":1}'), Flight("N2", '{"id":2}')]
WRITTEN = [("N1", '{"id":0}', 0, 0), (None, '{"id":1}', 0, 1), ("N2", '{"id":2}', 1, 0)]


def test_flights_are_keyed_by_tail_number_and_numbered() -> None:
    flights = list(read_flights(3))
    assert flights[0].key == "N14228"
    assert flights[0].value.startswith('{"id":0,"year":2013,"month":1,"day":1,"dep_time":517,')
    assert '"carrier":"UA"' in flights[0].value
    assert len({flight.value for flight in flights}) == 3


def test_unknown_columns_of_a_flight_are_null() -> None:
    flight = as_flight(7, {"dep_time": "NA", "tailnum": "", "dest": "NA"})
    assert flight == Flight(None, '{"id":7,"dep_time":null,"tailnum":null,"dest":null}')


def test_verdict_on_a_complete_run_is_good() -> None:
    verdict = compare(FLIGHTS, WRITTEN, GOOD, 3)
    assert verdict == Verdict(
        produced=3, written=3, distinct=3, missing=0, foreign=0, committed=GOOD
    )
    assert verdict.is_good


def test_rows_written_twice_are_counted_and_no_loss() -> None:
    verdict = compare(FLIGHTS, [*WRITTEN, WRITTEN[1]], GOOD, 3)
    assert (verdict.twice, verdict.distinct, verdict.is_good) == (1, 3, True)


@pytest.mark.parametrize(
    ("written", "committed", "produced"),
    [
        (WRITTEN[1:], GOOD, 3),
        ([*WRITTEN[1:], ("N1", '{"id":9}', 0, 0)], GOOD, 3),
        ([*WRITTEN[1:], ("N9", '{"id":0}', 0, 0)], GOOD, 3),
        (WRITTEN, {0: (1, 2), 1: (1, 1)}, 3),
        (WRITTEN, {0: (2, 2)}, 3),
        (WRITTEN, {}, 3),
        (WRITTEN, GOOD, 4),
    ],
)
def test_verdict_is_not_good(
    written: list[tuple[str | None, str, int, int]],
    committed: dict[int, tuple[int, int]],
    produced: int,
) -> None:
    assert not compare(FLIGHTS, written, committed, produced).is_good


def test_committed_offsets_are_read_from_kafkas_own_tool() -> None:
    text = """
GROUP           TOPIC      PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST
flight-readers  flights    0          1766            1800            34   -            -
flight-readers  flights    11         5               5               0    -            -
flight-readers  flights-2  3          1               1               0    -            -
flight-readers  flights    4          -               7               -    -            -
"""
    assert parse_description(text, "flights") == {0: (1766, 1800), 11: (5, 5)}


def test_last_lines_name_what_exists() -> None:
    lines = what_was_seen(compare(FLIGHTS, WRITTEN, GOOD, 3))
    assert [line.strip().partition(":")[0] for line in lines] == ["Seen", "Look closer", "Try next"]
    assert "all 3 rows" in lines[0]
    named = re.findall(r"\S+\.md", lines[2])
    assert named
    assert all((ROOT / each).is_file() for each in named)


def test_spark_log_names_what_counts(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def entry(name: str, action: str = "add") -> str:
        return f'{{"path":"file://{tmp_path}/{name}","size":1,"action":"{action}"}}'

    (log / "8").write_text(f"v1\n{entry('old')}", encoding="utf-8")
    compact = f"v1\n{entry('a%20b')}\n{entry('c')}\n{entry('c', 'delete')}"
    (log / "9.compact").write_text(compact, encoding="utf-8")
    (log / "10").write_text(f"v1\n{entry('d')}", encoding="utf-8")
    (log / ".10.crc").write_text("", encoding="utf-8")
    assert logged_files(tmp_path) == [tmp_path / "a b", tmp_path / "d"]
    assert logged_files(tmp_path / "none") == []
    assert parse_log(["v1"]) == []


def test_processes_of_a_group() -> None:
    listed = (
        "  1   1 init\n 20  20 java -cp x org.apache.spark.deploy.SparkSubmit jobs/consume.py\n"
        " 21  20 python jobs/consume.py\n 22  20 python -m x.python_streaming_source_runner\n"
        " 23  20 [bash] <defunct>\n 24  20 /usr/bin/tail -f x\n"
    )
    found = [Process(20, "JVM"), Process(21, "driver"), Process(22, "runner"), Process(24, "tail")]
    assert parse_processes(listed, 20) == found
    assert str(found[0]) == "JVM 20"


@pytest.mark.parametrize("end", [Application.kill, Application.terminate])
def test_application_that_ended_by_itself_shows_its_log(
    end: Callable[[Application], object], tmp_path: Path
) -> None:
    application = Application("flights-1", tmp_path, [])
    process = SupervisedJvm(None)
    process.run(["sh", "-c", "echo no broker here"], application.log)
    application._process, application._pid = process, process.pid
    try:
        assert process.wait(300) == 0
        with pytest.raises(ApplicationError, match="flights-1 ended by itself:\nno broker here"):
            end(application)
    finally:
        application.stop()


def test_partitions_are_written_as_ranges() -> None:
    assert as_ranges(TopicPartition("t", each) for each in (0, 1, 2, 5, 7, 8)) == "0-2, 5, 7-8"
    assert as_ranges(()) == "—"


def test_before_the_first_member_there_is_no_group() -> None:
    none_yet = GroupHistory("flight-readers").failed("there is no group 'flight-readers'", 1.0)
    assert as_line(Seen(none_yet, {}), []) == "no group yet"


def test_the_screen_is_that_of_watch_with_the_written_rows() -> None:
    history = GroupHistory("flight-readers")
    history.seen(view_group(read(member(ONE, [0, 1]))), 1.0)
    frame = history.seen(view_group(read(member(ONE, [0]), member(TWO, [1]))), 2.5)
    console = Console(width=120, height=40, file=io.StringIO(), color_system=None)
    with console.capture() as shown:
        console.print(as_screen(Seen(frame, {"flights-1": 1_234}), console))
    assert "rows written: flights-1 1,234" in shown.get()
    moved = "flights 1 moved from app-1 11111111 to app-2 22222222"
    assert f"  2.5 s  app-2 22222222 joined from 127.0.0.1; {moved} (2 events)" in shown.get()


def test_wrong_arguments_are_refused() -> None:
    done = subprocess.run(
        [*DEMO, "--rows", "3"], cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 2
    assert "--rows is 12 to 336776" in done.stderr


def start(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [*DEMO, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def said_pids(text: str) -> list[int]:
    """The pids that the demo prints: of the broker, and of the killed processes."""
    return [int(pid) for pid in re.findall(r"\b(?:pid|JVM|driver|runner) (\d+)", text)]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
def test_demo_hands_over_and_misses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "demo.txt"
    demo = start(log, "--rows", str(ROWS), "--seconds", "20")
    try:
        exit_code = demo.wait(800)
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait(300)
    text = log.read_text(encoding="utf-8")
    assert exit_code == 0, text
    assert re.search(r"flights-1 owns 0-5; flights-2 owns 6-11", text)
    assert re.search(rf"distinct rows in the output\s+│\s+{ROWS:,} ", text)
    assert re.search(r"missing\s+│\s+0 ", text)
    # Spark starts programs that end at once, such as chmod: one may be among them.
    assert re.search(r"killed: supervisor \d+, JVM \d+, driver \d+, runner \d+", text)
    assert len(said_pids(text)) >= 4
    assert not any(map(is_alive, said_pids(text)))
    assert f"all {ROWS:,} rows are there" in text


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_demo_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "demo.txt"
    demo = start(log, "--rows", str(ROWS))
    try:
        wait_until(lambda: "flights-1 owns 0-11" in log.read_text("utf-8"), 400, "the group")
        children = descendants(demo.pid)
        assert len(children) > 4
        demo.send_signal(number)
        exit_code = demo.wait(300)
    finally:
        demo.kill()
    assert exit_code == (-number if number == signal.SIGKILL else 130)
    wait_until(lambda: not any(map(is_alive, children)), 400, f"the end of {children}")


def test_picture_has_a_bar_for_each_owner_of_each_partition() -> None:
    looks = [Look(0.0, ("a", "a")), Look(4.0, ("a", "b")), Look(8.0, ("", "b"))]
    captions = [Caption(1.0, "b joins <now>"), Caption(6.0, "a is killed")]
    root = ElementTree.fromstring(animated(looks, captions, ["a", "b"]))
    name = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{name}g/{name}rect")
    shown = [(float(bar.attrib["width"]) / WIDTH, bar.attrib["fill"]) for bar in bars]
    a, b = COLOURS
    assert shown == [(1.0, a), (0.5, a), (0.5, b)]
    texts = [each.text for each in root.iter(f"{name}text")]
    assert "b joins <now>" in texts
    times = [each.attrib["keyTimes"] for each in root.iter(f"{name}animate")]
    assert times[:2] == ["0;0.1125;0.6750", "0;0.6750;1.0000"]
