"""What the live page shows first, and where: figures, lag, moves, and widths of a page."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from spark_groups.cli.group_list_watch import GroupDetails
from spark_groups.observation.frames import GroupHistory
from spark_groups.observation.lag_times import Deletion, LagTime
from spark_groups.observation.views import group_totals, view_group
from tests.cli.live_page_setup import (
    COLOUR_OF,
    a_list,
    frame_of,
    luminance,
    made_up,
    opened,
    rows_of,
    settled,
    showing,
    tiles_of,
)
from tests.observation.groups import ONE, TWO, member, read

pytestmark = pytest.mark.long

VISIBLE_CONTRAST = 3.0
"""Of parts of graphics, by WCAG 2.1, level AA."""
A_TIME = r"(\d+ \w{3} )?\d\d:\d\d"
DATED = re.compile(r"\d+ \w{3} \d\d:\d\d")
ALONE = view_group(read(member(ONE, range(4)), partitions=4))
SHARED = view_group(read(member(ONE, [0, 1]), member(TWO, [2, 3]), partitions=4))
MOVING = view_group(
    read(member(ONE, range(4), [0, 1]), member(TWO, [], [2, 3]), partitions=4, state="Reconciling")
)
EDGE_IN = """([selector, hue]) => {
  const bar = document.querySelector(selector);
  bar.style.setProperty('--hue', hue);
  return getComputedStyle(bar).stroke.match(/[0-9.]+/g).slice(0, 3).map(Number);
}"""
"""The colour of a bar's edge in a hue."""
ROWS = "(all) => new Set(all.map((each) => each.getBoundingClientRect().top)).size"
"""In how many rows elements stand."""


def test_lag_time_and_members_come_first_and_larger_than_epochs(browser: Browser) -> None:
    # In one call: the page draws its head again with each frame.
    measured = """() => {
      const head = document.querySelector('#head');
      const size = (each) => parseFloat(getComputedStyle(each).fontSize);
      const list = head.querySelector('dl');
      const lines = [...head.querySelectorAll('p')];
      const epochs = lines.find((each) => each.innerText.includes('group epoch 7'));
      const below = epochs.getBoundingClientRect().top - list.getBoundingClientRect().bottom;
      return {sizes: [...list.querySelectorAll('dd')].map(size), epochs: size(epochs), below};
    }"""
    with showing(frame_of(made_up())) as (_, url), opened(browser, url) as page:
        expect(page.locator("#partitions tbody tr")).to_have_count(4)
        assert list(tiles_of(page))[:3] == ["lag", "behind", "members"]
        found = page.evaluate(measured)
        sizes = found["sizes"]
        assert min(sizes[:3]) > max(sizes[3:]) > found["epochs"]
        assert found["below"] >= 0
        heads = list(rows_of(page, "partitions")["flights-2"])
        assert heads[:5] == ["partition", "owner", "moves to", "lag", "behind"]


def test_a_group_that_has_some_lag_all_the_time_keeps_up(browser: Browser) -> None:
    history = GroupHistory("flight-readers")
    for at_s, (committed, end) in enumerate([(0, 1_000), (1_000, 2_150), (2_000, 3_150)]):
        view = view_group(
            read(member(ONE, [0]), partitions=1, committed={0: committed}, ends={0: end})
        )
        frame = history.seen(view, 1_000.0 + at_s)
    with showing(frame) as (_, url), opened(browser, url) as page:
        expect(page.locator("#partitions tbody tr")).to_have_count(1)
        tiles = tiles_of(page)
        assert (tiles["lag"], tiles["outlook"]) == ("1,150", "keeps up")
        expect(page.locator("body")).not_to_contain_text("caught up")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (LagTime(seconds_behind=0.0), "never"),
        (LagTime(seconds_behind=1.0, first_unread_offset=3, deletion=Deletion.NEVER), "never"),
        (LagTime(seconds_behind=1.0, first_unread_offset=3, deletion=Deletion.BY_SIZE), "—"),
        (LagTime(remark="its retention is unknown"), "—"),
    ],
)
def test_records_without_a_time_expire_as_all_partitions_say(
    browser: Browser, second: LagTime, words: str
) -> None:
    first = LagTime(seconds_behind=2.0, first_unread_offset=3, deletion=Deletion.NEVER)
    view = view_group(
        read(member(ONE, [0, 1]), committed={0: 3, 1: 3}, ends=dict.fromkeys(range(2), 9))
    )
    partitions = tuple(
        replace(each, time=time)
        for each, time in zip(view.partitions, (first, second), strict=True)
    )
    timed = replace(view, partitions=partitions, totals=group_totals(view.members, partitions))
    with showing(frame_of(timed)) as (_, url), opened(browser, url) as page:
        expect(page.locator("#partitions tbody tr")).to_have_count(2)
        assert tiles_of(page)["unread records expire"] == words


def texts_of(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_the_lag_of_the_last_minutes_has_a_scale_and_times(browser: Browser) -> None:
    history = GroupHistory("flight-readers")
    now = time.time()
    for ago_s in range(86_400, 1_200, -600):
        history.seen(settled(3_900), now - ago_s)
    for ago_s in range(890, -1, -10):
        frame = history.seen(settled(1_000 + ago_s), now - ago_s)
    with showing(frame) as (_, url), opened(browser, url) as page:
        page.wait_for_selector("#lag path")
        assert texts_of(page, "#lag .level") == ["0", "500", "1,000", "1,500", "2,000", "now"]
        times = texts_of(page, "#lag .time")
        assert len(times) >= 4
        assert all(re.fullmatch(A_TIME, each) for each in times), times
        # The last minutes are drawn closer than a point for each minute, up to now.
        drawn = page.locator("#lag path").get_attribute("d") or ""
        assert drawn.count("L") > 60
        right = page.locator("#lag line.grid").first.get_attribute("x2") or "0"
        assert drawn.rpartition("L")[2].partition(" ")[0] == f"{float(right):.1f}"
        page.get_by_label("time range of lag").select_option("24 hours")
        assert texts_of(page, "#lag .level")[-2] == "4,000"
        # Times of yesterday have a date.
        assert DATED.match(texts_of(page, "#lag .time")[0])


def test_the_lag_is_drawn_from_the_second_poll_with_gaps_between_polls(browser: Browser) -> None:
    history = GroupHistory("flight-readers")
    now = time.time()
    first = history.seen(settled(5), now - 120.0)
    second = history.seen(settled(7), now - 118.0)
    history.seen(settled(0), now - 10.0)
    later = history.seen(settled(0), now)
    with showing(first) as (shown, url), opened(browser, url) as page:
        expect(page.locator("#partitions tbody tr")).to_have_count(1)
        expect(page.locator("#lag")).to_be_hidden()
        shown.frame = second
        expect(page.locator("#lag h2")).to_contain_text("at most 7 since")
        shown.frame = later
        expect(page.locator("#lag path")).to_have_attribute("d", re.compile(r"M.*M"))


def test_events_of_a_move_are_one_line_that_opens(browser: Browser) -> None:
    history = GroupHistory("flight-readers")
    now = time.time()
    history.seen(ALONE, now - 90_000.0)
    history.seen(SHARED, now - 86_400.0)
    history.seen(ALONE, now - 3.0)
    under_way = history.seen(MOVING, now - 2.0)
    over = history.seen(SHARED, now - 1.0)
    with showing(under_way) as (shown, url), opened(browser, url) as page:
        lines = page.locator("#events > ol > li")
        expect(lines).to_have_count(3)
        # The move under way is open, and one that is over is closed.
        expect(lines.nth(0).locator("li").first).to_be_visible()
        expect(lines.nth(0).locator("summary")).to_contain_text("events, under way)")
        expect(lines.nth(1).locator("li").first).to_be_hidden()
        joined = "app-2 22222222 joined from 127.0.0.1; flights 2-3 moved from app-1 11111111"
        expect(lines.nth(2)).to_contain_text(joined)
        # Events of another day have a date.
        times = texts_of(page, "#events summary time")
        assert [bool(DATED.match(each)) for each in times] == [False, False, True]
        lines.nth(2).locator("summary").click()
        shown.frame = over
        expect(lines.nth(0).locator("summary")).to_contain_text("to app-2 22222222 in 1.0 s")
        expect(lines.nth(0).locator("li").first).to_be_hidden()
        # A line that somebody opened stays open.
        expect(lines.nth(2).locator("li").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_faint_bar_is_visible_in_light_and_in_dark(browser: Browser, scheme: str) -> None:
    faint = "#ownership .own.revoking"
    with showing(frame_of(made_up())) as (_, url), opened(browser, url, scheme) as page:
        page.wait_for_selector(faint)
        back = luminance(page.evaluate(COLOUR_OF, ["#ownership", "backgroundColor"]))
        for hue in range(0, 360, 15):
            edge = luminance(page.evaluate(EDGE_IN, [faint, hue]))
            contrast = (max(edge, back) + 0.05) / (min(edge, back) + 0.05)
            assert contrast >= VISIBLE_CONTRAST, (hue, contrast)


def details(lag: int | None, *topics: str) -> GroupDetails:
    return GroupDetails(
        read_at_s=9.0,
        members=2,
        lag=lag,
        unknown_lag_partitions=0,
        topics=topics,
        topic_count=len(topics),
    )


def test_the_list_has_cluster_topics_totals_and_the_largest_lag_first(browser: Browser) -> None:
    read_of = {"a": details(5, "flights"), "b": details(1_200, *"vwxyz"), "c": details(30, "t")}
    frame = replace(
        a_list("a", "b", "c", "d"),
        details=read_of,
        cluster_id="abc",
        brokers=("b1:9092 (id 1)", "b2:9092 (id 2)"),
    )
    with showing(frame, "") as (_, url), opened(browser, url) as page:
        expect(page.locator("#groups tbody tr")).to_have_count(4)
        shown = rows_of(page, "groups")
        assert list(shown) == ["b", "c", "a", "d"]
        assert shown["b"]["topics"] == "v, w, x and 2 more"
        assert "for" not in shown["b"]
        expect(page.locator("#cluster")).to_have_text(
            "cluster abc · 2 brokers: b1:9092 (id 1), b2:9092 (id 2)"
        )
        foot = page.locator("#groups tfoot td")
        assert foot.all_inner_texts()[:4] == ["total of 4", "", "1,235 (unknown in 1)", "6"]
        # Totals are those of the rows that are shown, which can be chosen by topic.
        page.fill("#filter", "flights")
        expect(foot.nth(2)).to_have_text("5")
        page.fill("#filter", "")
        page.locator("#groups th button", has_text="group").click()
        expect(page.locator("#groups tbody tr").first).to_contain_text("flights")


def test_at_600_pixels_a_partition_is_a_row_and_tiles_are_in_two_rows(browser: Browser) -> None:
    with showing(frame_of(made_up())) as (shown_frame, url):
        with opened(browser, url, width=600) as page:
            expect(page.locator("#partitions tbody tr")).to_have_count(4)
            shown = rows_of(page, "partitions")
            assert list(shown["flights-0"]) == ["partition", "owner", "lag", "behind"]
            # There is no column for the next owner.
            assert shown["flights-2"]["owner"] == "<img src=x onerror=alert(1)> → app-2"
            cells = page.locator("#partitions tbody tr").first.locator("td:visible")
            assert (cells.count(), cells.evaluate_all(ROWS)) == (4, 1)
            box = page.locator("#partitions tbody tr").first.bounding_box()
            assert box is not None
            assert box["height"] < 40
            assert page.locator("#head dl > div").evaluate_all(ROWS) == 2
            # Where members have the same client id, their ids tell them apart.
            same = tuple(replace(each, client_id="app") for each in made_up().members)
            shown_frame.frame = frame_of(made_up(members=same))
            owner = page.locator("#partitions tbody tr").nth(2).locator("td").nth(1)
            expect(owner).to_have_text("app 11111111 → app 22222222", use_inner_text=True)
        with opened(browser, url, width=1280) as page:
            expect(page.locator("#partitions tbody tr")).to_have_count(4)
            assert "log end" in rows_of(page, "partitions")["flights-0"]
            assert page.locator("#head dl > div").evaluate_all(ROWS) == 1
