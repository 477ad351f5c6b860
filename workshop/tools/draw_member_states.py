"""Generate docs/member_states.md from `group/member/member_states.py`; run without arguments.

A test fails if the page is older than the table of transitions.
"""

from __future__ import annotations

from pathlib import Path

from spark_groups.group.member.member_states import TRANSITIONS, MemberInput, MemberState

PAGE = Path(__file__).resolve().parents[2] / "docs" / "member_states.md"


def draw() -> str:
    """Return the page."""
    return "\n".join(
        [
            "# The states of a group member",
            "",
            "<!-- Made by workshop/tools/draw_member_states.py from the table in"
            " spark_groups/group/member/member_states.py. -->",
            "",
            "A pair of state and input that has no arrow is a bug of the caller: it raises and"
            " leaves the state as it was.",
            "Inputs that lead back to the same state are listed below the picture.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            "    [*] --> UNSUBSCRIBED",
            *_arrows(),
            "```",
            "",
            "| state | what it means | stays as it is after |",
            "|---|---|---|",
            *(f"| {state.name} | {state.value} | {_loops(state)} |" for state in MemberState),
            "",
            "| input | what happened |",
            "|---|---|",
            *(f"| {each.name} | {each.value} |" for each in MemberInput),
            "",
        ]
    )


def _arrows() -> list[str]:
    """One arrow for each pair of states, with all inputs that lead that way."""
    arrows: dict[tuple[MemberState, MemberState], list[str]] = {}
    for state, moves in TRANSITIONS.items():
        for member_input, then in moves.items():
            if then is not state:
                arrows.setdefault((state, then), []).append(member_input.name)
    return [
        f"    {state.name} --> {then.name}: {', '.join(inputs)}"
        for (state, then), inputs in arrows.items()
    ]


def _loops(state: MemberState) -> str:
    loops = [transition.name for transition, then in TRANSITIONS[state].items() if then is state]
    return ", ".join(loops) or "nothing"


if __name__ == "__main__":
    PAGE.write_text(draw(), encoding="utf-8")
