"""The page of a run: what its lanes show, in a real browser too, for a long run as well."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from lab.tests.commands.timeline_page_setup import Balanced
from workshop.chaos.results.facts import Disruption, End, Note, read_facts, read_notes
from workshop.chaos.results.page import NAME, page_of
from workshop.chaos.results.timeline import OTHERS, Bar, State, read_timeline
from workshop.tests.chaos.results.page_setup import CUT, eventful, kept, laid_out
from workshop.tests.chaos.stories import PLAIN, TOPIC, Story


def bars(lane: tuple[Bar, ...], state: State) -> list[tuple[float, float, str]]:
    return [(each.from_s, each.until_s, each.label) for each in lane if each.state is state]


def test_member_has_its_processes_and_their_faults() -> None:
    timeline, _ = laid_out(eventful())
    lane = next(member for member in timeline.members if member.name == "q1")
    assert [member.name for member in timeline.members] == ["q1", "q2", "q9"]
    assert bars(lane.bars, State.RUNNING) == [(1.0, 15.0, "q1.1"), (29.0, 30.0, "q1.2")]
    assert bars(lane.bars, State.STOPPED) == [(9.0, 13.0, "stopped")]
    assert bars(lane.bars, State.DOWN) == [(15.0, 29.0, "down")]
    assert bars(lane.bars, State.BATCH) == [(4.0, 7.0, "")]
    assert [(each.at_s, each.sign) for each in lane.marks] == [(9.0, "S"), (14.0, "L"), (15.0, "K")]
    assert "session lost: it stood still; ants-0" in lane.marks[1].title
    assert "SIGKILL; point: in a table's commit" in lane.marks[2].title


def test_partition_has_its_owners_the_gap_between_them_and_the_longest_pause() -> None:
    timeline, _ = laid_out(eventful())
    (lane,) = timeline.partitions
    assert lane.name == "ants-0"
    assert bars(lane.bars, State.OWNED) == [(4.0, 7.0, "q1.1"), (24.0, 27.0, "q2.1")]
    assert bars(lane.bars, State.UNREAD) == [(7.0, 24.0, "17 s")]
    assert bars(lane.bars, State.LONGEST) == [(4.0, 7.0, "longest pause")]
    assert timeline.unread is not None
    name, gap = timeline.unread
    assert (name, gap.until_s - gap.from_s) == ("ants-0", 17.0)
    assert "before it q1.1, after it q2.1" in gap.title


def test_broker_is_down_until_it_runs_and_behind_until_it_is_in_sync() -> None:
    timeline, _ = laid_out(eventful())
    lanes = {each.name: each for each in timeline.disrupted}
    assert list(lanes) == ["broker 1", "broker 2", "broker 3", OTHERS]
    assert bars(lanes["broker 2"].bars, State.DOWN) == [(17.0, 19.0, "SIGKILL")]
    assert bars(lanes["broker 2"].bars, State.BEHIND) == [(19.0, 20.0, "behind")]
    assert "the coordinator; leader of 1 partitions" in lanes["broker 2"].bars[0].title
    assert [(disruption.from_s, disruption.until_s) for disruption in timeline.disruptions] == [
        (17.0, 20.0),
        (2.0, 3.0),
    ]
    assert [each.sign for each in lanes[OTHERS].marks] == ["+"]


def test_fault_of_a_kind_that_is_new_is_drawn_by_its_name() -> None:
    story = eventful()
    _, report = laid_out(story)
    report["network"] = [{"kind": "a cut cable", "node": 0, "from_s": 5.0, "healed_s": 9.0}]
    notes = read_notes(story.lines)
    notes.append({"at_s": 20.0, "member": "q1", "run": 2, "what": "clock jumps", "by_s": 60})
    timeline = read_timeline(story.evidence(), notes, report)
    others = timeline.disrupted[-1]
    assert bars(others.bars, State.FAULT) == [
        (2.0, 3.0, "a member's clock jumps"),
        (5.0, 9.0, "a cut cable"),
    ]
    assert timeline.members[0].marks[-1].sign == "*"
    assert timeline.members[0].marks[-1].title == "q1.2, 20.0 s: clock jumps; by_s: 60"


def test_topics_that_grow_are_no_process() -> None:
    assert "ensemble" not in {run.member for run in read_facts(eventful().lines).runs}


def test_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    page = page_of(kept(eventful(), tmp_path))
    parser = Balanced()
    parser.feed(re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL))
    assert parser.open == []
    assert not re.search(r"https?://|<link|@import|src=", page.replace("http://www.w3.org/", ""))
    for part in (
        "python -m workshop.chaos.run --minutes 2 --seed 7",
        "1.2, 3.5 on 2 cores",
        "17.0 s: ants-0",
    ):
        assert part in page, part


def long_run() -> Story:
    """Twelve minutes: six members with a batch each second, 24 partitions that move."""
    story = Story()

    def note(at_s: float, run: str, what: Note, **fields: Any) -> None:
        story.note(run, what, **fields)
        story.lines[-1] = json.dumps({**json.loads(story.lines[-1]), "at_s": at_s})

    for member in range(6):
        run = f"q{member + 1}.1"
        note(1.0, run, Note.BEGINS)
        for second in range(2, 720):
            first = 4 * ((member + second // 60) % 6)
            named = [[TOPIC, first + each] for each in range(4)]
            batch: dict[str, Any] = {"batch": second, "plan": f"plan {second} of {run}"}
            note(second, run, Note.PLANNED, **batch, partitions=named)
            note(second + 0.1, run, Note.READS, **batch, replay=False)
            note(second + 0.5, run, Note.WRITES, batch=second)
            if second % 50 == 0:
                note(second + 0.6, run, Note.FROZE)
                note(second + 0.9, run, Note.THAWED)
    for second in range(20, 720, 40):
        led = ((TOPIC, 0),)
        times = (second, second + 0.1, second + 9.0, second + 12.0)
        story.disruptions.append(Disruption(CUT, 1 + second % 3, *times, led, coordinated=False))
    note(720.0, f"{PLAIN}.1", Note.ENDED, how=End.STOPPED.value)
    return story


def test_twelve_minutes_with_24_partitions_can_be_read_in_a_browser(
    browser: Browser, tmp_path: Path
) -> None:
    directory = kept(long_run(), tmp_path)
    path = directory / NAME
    path.write_text(page_of(directory), encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    messages: list[str] = []
    with browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True) as context:
        page = context.new_page()
        page.on("console", lambda each: messages.append(each.text))
        page.on("pageerror", lambda each: messages.append(str(each)))
        page.goto(path.as_uri())
        shown = page.locator(".names text").all_text_contents()
        assert [each for each in shown if each.startswith(TOPIC)][::23] == ["ants-0", "ants-23"]
        box, chart = page.locator(".scroll"), page.locator("#chart")
        assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth"), "all of it at once"
        page.get_by_role("button", name="8x", exact=True).click()
        assert box.evaluate("(box) => box.scrollWidth > 6 * box.clientWidth")
        expect(page.get_by_role("button", name="8x", exact=True)).to_have_attribute(
            "aria-pressed", "true"
        )
        box.evaluate("(box) => { box.scrollLeft = 0; }")
        chart.locator(".stopped").first.hover(force=True)
        expect(page.locator("#tip")).to_contain_text("q1.1, 50.6 s: SIGSTOP")
        place = page.locator(".names").bounding_box()
        assert place is not None
        assert place["x"] >= 0.0, "names stay when the timeline scrolls"
        schemes: dict[Any, str] = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
        for scheme, back in schemes.items():
            page.emulate_media(color_scheme=scheme)
            expect(page.locator("body")).to_have_css("background-color", back)
    assert messages == []
