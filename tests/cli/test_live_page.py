"""The live page in a real browser: numbers, colours, and what stays where things are lost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.observation.frames import GroupHistory
from spark_groups.observation.lag_times import Deletion, LagTime
from spark_groups.observation.local_members import LocalMember
from spark_groups.observation.views import GroupView, group_totals, view_group
from tests.cli.cli_setup import kafkas_own
from tests.cli.live_page_setup import (
    COLOUR_OF,
    POINTED_AT,
    READABLE_CONTRAST,
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
from tests.cli.page_server_setup import documents
from tests.cli.serve_cli_setup import asked, serving, started
from tests.cli.watched_groups import assigned_group, lagging_group, run_until_assigned
from tests.observation.groups import member, read
from tests.runtime.members import queries
from workshop.parts.brokers import Row, produce

pytestmark = pytest.mark.long


@pytest.mark.broker
def test_the_page_shows_a_hand_over_with_the_numbers_of_kafkas_own_tool(
    kafka: EmbeddedKafka, browser: Browser, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    with (
        lagging_group(servers, topic_name, group_id, 1_007) as (first, start),
        serving(servers) as url,
        opened(browser, url) as page,
    ):
        page.fill("#filter", group_id)
        page.get_by_role("link", name=group_id, exact=True).click()
        expect(page.locator("#members tbody tr")).to_have_count(1)
        expect(page.locator("#head .pill")).to_have_text("Stable")
        shown = rows_of(page, "partitions")
        assert shown[f"{topic_name}-1"]["lag"] == "1,007"
        assert shown[f"{topic_name}-1"]["owner"] == f"query-like {first.member_id[:8]}"
        assert {
            int(partition.rpartition("-")[2]): tuple(
                row[name].replace(",", "") for name in ("committed", "log end", "lag")
            )
            for partition, row in shown.items()
        } == {each: row[:3] for each, row in kafkas_own(kafka, group_id).items()}
        second = start()
        run_until_assigned(second, 2, first)
        expect(page.locator("#members tbody tr")).to_have_count(2)
        expect(page.locator("#events")).to_contain_text("moved from query-like")
        expect(page.locator("#ownership rect")).not_to_have_count(4)
        page.get_by_role("link", name="groups", exact=True).click()
        expect(page.locator("#groups tbody tr").first).to_be_visible()


@pytest.mark.broker
def test_a_lost_broker_and_a_lost_server_leave_the_last_view_with_a_banner(
    browser: Browser, topic_name: str, group_id: str
) -> None:
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        with (
            assigned_group(servers, topic_name, group_id),
            started(servers) as (process, url),
            opened(browser, f"{url}#group={group_id}") as page,
        ):
            banner = page.get_by_role("alert")
            expect(page.locator("#partitions tbody tr")).to_have_count(2)
            expect(banner).to_be_hidden()
            kafka.pause()
            expect(banner).to_contain_text("brokers have not answered")
            expect(banner).to_contain_text(servers)
            expect(page.locator("#partitions tbody tr")).to_have_count(2)
            kafka.resume()
            expect(banner).to_be_hidden()
            process.kill()
            expect(banner).to_contain_text("spark-groups serve does not answer")
            expect(page.locator("#partitions tbody tr")).to_have_count(2)


@pytest.mark.broker
def test_a_group_that_is_missing_is_not_blamed_on_the_brokers(
    kafka: EmbeddedKafka, browser: Browser, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    with (
        assigned_group(servers, topic_name, group_id),
        serving(servers) as url,
        opened(browser, f"{url}#group={group_id}-a") as page,
    ):
        banner = page.get_by_role("alert")
        expect(banner).to_contain_text(f"there is no group '{group_id}-a'")
        expect(banner).to_contain_text(f"did you mean '{group_id}'?")
        expect(banner).to_contain_text("Brokers answer; polling continues.")
        expect(banner).not_to_contain_text("have not answered")
        with queries(servers, f"{group_id}-a", topic_name) as start_there:
            run_until_assigned(start_there(), 2)
            expect(banner).to_be_hidden()
            expect(page.locator("#partitions tbody tr")).to_have_count(2)


def test_a_group_that_is_gone_leaves_its_last_view(browser: Browser) -> None:
    history = GroupHistory("flight-readers")
    good = history.seen(made_up(), 1_000.0)
    gone = history.failed("there is no group 'flight-readers'", 1_001.0, is_missing=True)
    lost = history.failed("b:9092: refused", 1_002.0)
    with showing(good) as (shown, url), opened(browser, url) as page:
        banner = page.get_by_role("alert")
        expect(page.locator("#partitions tbody tr")).to_have_count(4)
        expect(banner).to_be_hidden()
        shown.frame = gone
        expect(banner).to_contain_text("there is no group 'flight-readers' (since ")
        expect(banner).to_contain_text("showing data from")
        expect(page.locator("#events")).to_contain_text("there is no group 'flight-readers'")
        shown.frame = lost
        expect(banner).to_contain_text("brokers have not answered since")
        expect(page.locator("#partitions tbody tr")).to_have_count(4)


@pytest.mark.broker
def test_what_happened_to_a_watched_group_is_there_for_who_looks_later(
    kafka: EmbeddedKafka, browser: Browser, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    with (
        assigned_group(servers, topic_name, group_id, 4) as (first, start),
        serving(servers, "--watch", group_id) as url,
    ):
        stream = asked(url, f"/events?group={group_id}")
        next(e for e in documents(stream) if e["group"] and e["group"]["totals"]["members"] == 1)
        stream.close()
        second = start()
        run_until_assigned(second, 2, first)
        with opened(browser, f"{url}#group={group_id}") as page:
            expect(page.locator("#members tbody tr")).to_have_count(2)
            expect(page.locator("#events")).to_contain_text("moved from query-like")
            expect(page.locator("#ownership rect")).not_to_have_count(4)


def test_the_lag_of_a_night_is_drawn_with_its_gaps(browser: Browser) -> None:
    history = GroupHistory("flight-readers")
    history.seen(settled(5), 0.0)
    history.seen(settled(900), 60.0)
    history.seen(settled(7), 36_000.0)
    frame = history.seen(settled(8), 36_060.0)
    with showing(frame) as (_, url), opened(browser, url) as page:
        page.get_by_label("time range of lag").select_option("24 hours")
        expect(page.locator("#lag h2")).to_contain_text("at most 900 since")
        drawn = page.locator("#lag path").get_attribute("d")
        assert drawn is not None
        assert drawn.count("M") == 2
        page.get_by_label("time range of ownership").select_option("24 hours")
        title = page.locator("#ownership rect").first.evaluate(POINTED_AT)
        assert "to now" in title


@pytest.mark.broker
def test_the_list_has_members_lag_state_colour_and_age(
    kafka: EmbeddedKafka, browser: Browser, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    with assigned_group(servers, topic_name, group_id), serving(servers) as url:
        produce(servers, topic_name, [Row(b"x", partition=1)] * 1_007)
        with opened(browser, url) as page:
            page.fill("#filter", group_id)
            row = page.locator("#groups tbody tr")
            expect(row).to_contain_text("1,007")
            shown = rows_of(page, "groups")[group_id]
            assert (shown["members"], shown["lag"], shown["state"]) == ("1", "1,007", "Stable")
            assert shown["topics"] == topic_name
            assert re.fullmatch(r"> (\d+ min )?\d+ s", shown["time in state"])
            cluster = page.locator("#cluster")
            expect(cluster).to_contain_text(re.compile(r"^cluster \S{22} · 1 broker: "))
            expect(cluster).to_contain_text(servers)
            colour = page.evaluate(COLOUR_OF, ["#groups .pill.stable", "color"])
            assert colour != page.evaluate(COLOUR_OF, ["body", "color"])


def test_an_unread_figure_of_a_listed_group_is_a_dash(browser: Browser) -> None:
    with showing(a_list("a", "b"), "") as (_, url), opened(browser, url) as page:
        expect(page.locator("#groups tbody tr")).to_have_count(2)
        shown = rows_of(page, "groups")
    names = ("time in state", "members", "lag")
    assert [shown["a"][each] for each in names] == ["2 h 1 min", "3", "1,234,567 (2 unknown)"]
    assert [shown["b"][each] for each in names] == ["—", "—", "—"]


def test_an_unknown_figure_is_a_dash_and_names_from_members_are_text(browser: Browser) -> None:
    with showing(frame_of(made_up(group_epoch=None))) as (_, url), opened(browser, url) as page:
        expect(page.locator("#partitions tbody tr")).to_have_count(4)
        shown = rows_of(page, "partitions")
        tiles = tiles_of(page)
        expect(page.locator("#head")).to_contain_text("group epoch — · assignment epoch 6")
    names = ("owner", "committed", "log end", "lag", "trend", "lag change")
    assert [shown["flights-3"][each] for each in names] == ["no member", "none", *"————"]
    assert shown["flights-0"]["owner"] == "<img src=x onerror=alert(1)> 11111111"
    moving = shown["flights-2"]
    assert (moving["lag"], moving["moves to"]) == ("1,234,567*", "app-2 22222222")
    assert tiles["lag"] == "3,702,694 (1 unknown)"
    assert tiles["partitions"] == "4 (1 moving, 1 unassigned)"


def test_lag_in_time_and_deletion_alerts_are_shown(browser: Browser) -> None:
    soon = LagTime(
        seconds_behind=600_000.0,
        first_unread_offset=1_000,
        first_unread_ms=1_700_000_000_000,
        deletion=Deletion.BY_AGE,
        retention_ms=604_800_000,
        deletion_in_s=4_800.0,
    )
    unknown = LagTime(remark="its age is unknown: no leader")

    def timed(first: LagTime) -> GroupView:
        view = made_up()
        times = (first, LagTime(seconds_behind=2.5), unknown, LagTime())
        partitions = tuple(
            replace(each, time=time) for each, time in zip(view.partitions, times, strict=True)
        )
        return replace(view, partitions=partitions, totals=group_totals(view.members, partitions))

    frame = frame_of(timed(soon), timed(soon))
    with showing(frame) as (shown, url), opened(browser, url) as page:
        expect(page.locator("#alerts p")).to_have_text(
            "flights-0: unread records may be deleted in 1 h 20 min (retention.ms is 7 d): raise"
            " retention.ms of flights until the group has caught up"
        )
        rows = rows_of(page, "partitions")
        names = [f"flights-{each}" for each in range(4)]
        assert [rows[each]["behind"] for each in names] == ["6 d 22 h", "2.5 s", "—", "—"]
        assert [rows[each]["records expire"] for each in names] == ["in 1 h 20 min", "", "", ""]
        assert rows["flights-2"]["remark"] == "its age is unknown: no leader"
        tiles = tiles_of(page)
        assert tiles["behind"] == "6 d 22 h (2 unknown)"
        assert tiles["unread records expire"] == "in 1 h 20 min"
        assert tiles["outlook"] == "—"
        # It is records that expire: nothing says "deletion" alone.
        assert "deletion" not in page.locator("main").inner_text()
        expect(page.locator("#events li.alarm")).to_contain_text("flights-0: unread records")
        page.locator("#partitions th button", has_text=re.compile("^behind$")).click()
        expect(page.locator("#partitions tbody tr").first).to_contain_text("6 d 22 h")
        shown.frame = frame_of(timed(soon), timed(LagTime(seconds_behind=0.0)))
        expect(page.locator("#alerts")).to_be_hidden()
        expect(page.locator("#events")).to_contain_text("alert ended: flights 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_in_dark(browser: Browser, scheme: str) -> None:
    frame = frame_of(made_up(), made_up())
    with showing(frame) as (_, url), opened(browser, url, scheme) as page:
        expect(page.locator("#partitions tbody tr")).to_have_count(4)
        page.wait_for_selector("#revocations p")
        selectors = (
            *("body", "h1 a", ".pill", "dt", "dd.alarm", "dd small", "p.quiet", "th button"),
            *("td.moving", "td.alarm", "#events time", "#revocations .quiet"),
        )
        contrasts = {each: contrast(page, each) for each in selectors}
        is_dark = luminance(page.evaluate(COLOUR_OF, ["body", "backgroundColor"])) < 0.2
    assert {name: value for name, value in contrasts.items() if value < READABLE_CONTRAST} == {}
    assert is_dark is (scheme == "dark")


def contrast(page: Page, selector: str) -> float:
    text, back = (
        luminance(page.evaluate(COLOUR_OF, [selector, each]))
        for each in ("color", "backgroundColor")
    )
    return (max(text, back) + 0.05) / (min(text, back) + 0.05)


def large(committed: int) -> GroupView:
    """A group of 200 members and 1,000 partitions; the later ones lag more."""
    ids = [f"{each:08}-0000-4000-8000-000000000000" for each in range(200)]
    members = [
        member(each, range(n * 5, n * 5 + 5), client_id=f"reader-{n}") for n, each in enumerate(ids)
    ]
    ends = {each: 1_000 + each // 10 for each in range(1_000)}
    ends[0] = committed
    given = dict.fromkeys(range(1_000), committed)
    return view_group(read(*members, partitions=1_000, committed=given, ends=ends))


def test_a_thousand_partitions_of_two_hundred_members_can_be_searched_and_sorted(
    browser: Browser,
) -> None:
    with showing(frame_of(large(500), large(600))) as (shown, url), opened(browser, url) as page:
        rows, members = page.locator("#partitions tbody tr"), page.locator("#members tbody tr")
        expect(rows).to_have_count(1_000)
        expect(members).to_have_count(200)
        expect(page.locator("#ownership rect")).to_have_count(1_000)
        expect(page.locator(".legend")).to_contain_text("and 188 more members")
        title = page.locator("#ownership rect").first.evaluate(POINTED_AT)
        assert title.startswith(
            "flights-0: reader-0 00000000-0000-4000-8000-000000000000, epoch 7,"
        )

        page.keyboard.press("/")
        page.keyboard.type("reader-17")
        # reader-17, and reader-170 to reader-179.
        expect(rows).to_have_count(55)
        expect(members).to_have_count(11)
        expect(page.locator("#partitions h2")).to_contain_text("55 of 1,000")
        page.keyboard.press("Escape")
        expect(rows).to_have_count(1_000)
        page.get_by_label("lag > 0").check()
        expect(rows).to_have_count(999)
        page.get_by_label("lag > 0").uncheck()
        page.get_by_label("moving or without an owner").check()
        expect(page.locator("#partitions tbody")).to_contain_text("nothing matches the filter")
        page.get_by_label("moving or without an owner").uncheck()

        lag = page.locator("#partitions th").filter(has_text="lag").first
        lag.get_by_role("button").press("Enter")
        expect(lag).to_have_attribute("aria-sort", "descending")
        expect(rows.first).to_contain_text("499")
        rows.first.evaluate("(row) => { row.dataset.kept = 'yes'; }")
        shown.frame = frame_of(large(500), large(600), large(700))
        expect(rows.first).to_contain_text("399")
        # The row is the same element: what one reads or has selected does not go away.
        assert page.locator("[data-kept=yes]").count() == 1
        expect(rows).to_have_count(1_000)


WIDER_THAN_SEEN = """() => {
  const root = document.scrollingElement;
  const wide = [...document.querySelectorAll('.scroll')]
    .filter((each) => each.scrollWidth > each.clientWidth)
    .map((each) => each.closest('section').id);
  return root.scrollWidth > innerWidth ? [...wide, 'page'] : wide;
}"""
LONG = "the-flights-that-leave-from-every-airport-of-the-north-east-in-the-morning"


@pytest.mark.parametrize("width", [360, 600])
def test_on_a_narrow_page_nothing_scrolls_out_of_view(browser: Browser, width: int) -> None:
    wide = made_up(
        members=tuple(
            replace(each, client_id=f"{LONG}-{number}", local=LocalMember(state="STABLE"))
            for number, each in enumerate(made_up().members)
        ),
        partitions=tuple(
            replace(each, topic=LONG, remark="log end offset: NOT_LEADER_OR_FOLLOWER")
            for each in made_up().partitions
        ),
    )
    with showing(frame_of(wide, wide)) as (shown, url):
        with opened(browser, url, width=width) as page:
            expect(page.locator("#partitions tbody tr")).to_have_count(4)
            expect(page.locator("#members tbody tr")).to_have_count(2)
            page.wait_for_selector("#ownership rect")
            assert page.evaluate(WIDER_THAN_SEEN) == []
            # The columns that one sorts by are still there.
            lag = page.locator("#partitions th").filter(has_text="lag").first
            lag.get_by_role("button").click()
            expect(lag).to_have_attribute("aria-sort", "descending")
        shown.frame = a_list(LONG, f"{LONG}-{LONG}")
        with opened(browser, url.partition("#")[0], width=width) as page:
            expect(page.locator("#groups tbody tr")).to_have_count(2)
            assert page.evaluate(WIDER_THAN_SEEN) == []


@pytest.mark.parametrize(
    ("address", "is_linked"),
    [
        ("http://driver-1.example:4040", True),
        ("https://[fd00::1]:4440", True),
        ("javascript:alert(1)//:4040", False),
        ("http://driver-1.example:4040/x?y", False),
        ("http://me@driver-1.example:4040", False),
        (None, False),
    ],
)
def test_the_spark_ui_is_a_link_if_it_is_a_plain_address(
    browser: Browser, address: str | None, is_linked: bool
) -> None:
    view = made_up()
    local = LocalMember(state="STABLE", spark_ui=address)
    view = replace(view, members=(replace(view.members[0], local=local), *view.members[1:]))
    with showing(frame_of(view)) as (_, url), opened(browser, url) as page:
        expect(page.locator("#members tbody")).to_contain_text("stable")
        links = page.locator("#members a")
        assert [each.get_attribute("href") for each in links.all()] == [address] * is_linked
