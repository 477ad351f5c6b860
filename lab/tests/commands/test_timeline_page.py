"""A run as one page that loads nothing."""

from __future__ import annotations

import re
import uuid

from group_lab.commands.timeline_page import render_page
from group_lab.sim.timeline import BatchSpan, Span, Timeline
from lab.tests.commands.timeline_page_setup import Balanced
from spark_groups.types import TopicIdPartition

KEY = TopicIdPartition(uuid.UUID(int=1), 0)
TIMELINE = Timeline(
    names={KEY: "orders-0"},
    spans={
        KEY: [
            Span("q1.1.1", 7, False, 1.0, 9.0),
            Span("q1.1.1", 7, True, 9.0, 9.5),
            Span("q2.1.1", 8, False, 10.0, 20.0),
        ]
    },
    batches=[BatchSpan("q1", {KEY: (0, 5)}, 2.0, 4.0), BatchSpan("q2", {KEY: (5, 9)}, 12.0)],
    incidents=[(11.0, "cut <q2>")],
    ends_at=20.0,
)


def test_page_is_whole_and_loads_nothing() -> None:
    page = render_page("three <queries>", [("kafka-4.3", "it moved", TIMELINE)])
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"https?://|<script|<link|url\(|@import", page)
    assert "three &lt;queries&gt;" in page
    assert "prefers-color-scheme: dark" in page


def test_owners_epochs_batches_and_incidents_are_drawn() -> None:
    page = render_page("t", [("kafka-4.3", "it moved", TIMELINE)])
    assert page.count('class="own"') == 2
    assert page.count('class="own revoking"') == 1
    assert "q1.1.1 at epoch 7, pending revocation, 9.000 to 9.500 s" in page
    assert "q1 reads [0, 5), 2.000 to 4.000 s" in page
    assert 'class="batch unfinished"' in page
    assert "11.000 s: cut &lt;q2&gt;" in page
    assert ">orders-0</text>" in page
    assert "q2 reads [5, 9), 12.000 to never" in page
    hues = {"q1": page.count("--hue:210"), "q2": page.count("--hue:28")}
    assert hues == {"q1": 3, "q2": 2}, "bars and legend"


def test_a_static_member_that_is_away_is_hollow_and_has_no_epoch() -> None:
    spans = [Span("q1.1.1", 7, False, 1.0, 9.0), Span("q1.1.1", -2, False, 9.0, 24.0)]
    timeline = Timeline({KEY: "orders-0"}, {KEY: spans}, ends_at=30.0)
    page = render_page("t", [("kafka-4.3", "it was away", timeline)])
    assert page.count('class="own"') == page.count('class="own away"') == 1
    assert "q1.1.1 is away and will return, 9.000 to 24.000 s" in page
    assert re.findall(r'<text x="[\d.]+" y="40">([^<]+)</text>', page)[1:] == ["7", "away"]
    assert "epoch -2" not in page


def test_bars_stand_where_the_time_says() -> None:
    page = render_page("t", [("kafka-4.3", "it moved", TIMELINE)])
    found = re.findall(r'class="own"[^>]* x="([\d.]+)" y="\d+" width="([\d.]+)"', page)
    (first, width), (second, _) = [(float(x), float(w)) for x, w in found]
    assert abs((second - first) / width - 9.0 / 8.0) < 0.01


def test_many_applications_are_distinct_and_in_order() -> None:
    spans = [Span(f"q{each}.1.1", 1, False, each, each + 1.0) for each in range(1, 25)]
    page = render_page("t", [("h", "s", Timeline({KEY: "orders-0"}, {KEY: spans}, ends_at=30.0))])
    legend = re.findall(r'<i style="([^"]+)"></i>(q\d+)', page)
    assert [name for _, name in legend] == [f"q{each}" for each in range(1, 25)]
    assert len({colour for colour, _ in legend}) == 24


def test_a_run_in_which_nothing_happened_is_a_page_too() -> None:
    assert "<svg" in render_page("t", [("kafka-4.3", "nothing", Timeline())])
