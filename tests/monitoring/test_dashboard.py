"""The dashboard and the alerts of conf/ use exactly the exported metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.documents import blocks_of
from tests.monitoring.dashboard_setup import NAME, exported

CONF = Path(__file__).parents[2] / "conf"
DASHBOARD = json.loads((CONF / "grafana" / "kafka-group.json").read_text(encoding="utf-8"))
ALERTS = (CONF / "prometheus" / "kafka-group-alerts.yml").read_text(encoding="utf-8")
LABELS = {"group", "topic", "partition", "state", "condition", "request", "error", "le"}
ADDED_BY_PROMETHEUS = {"instance"}


def panels() -> list[dict[str, Any]]:
    return [each for each in DASHBOARD["panels"] if each["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def alert_expressions() -> list[str]:
    return re.findall(r"^ +expr: (.+)$", ALERTS, re.MULTILINE)


def test_every_metric_that_is_shown_is_exported() -> None:
    shown = {name for text in expressions() for name in NAME.findall(text)}
    assert shown
    assert shown <= exported().keys()


def test_every_family_that_is_exported_is_shown() -> None:
    known = exported()
    shown = {known[name] for text in expressions() for name in NAME.findall(text)}
    assert set(known.values()) - shown == set()


def test_alerts_ask_only_for_exported_metrics() -> None:
    asked = {name for text in alert_expressions() for name in NAME.findall(text)}
    assert len(alert_expressions()) == ALERTS.count("- alert: ") >= 5
    assert asked <= exported().keys()
    assert set(NAME.findall(ALERTS)) <= exported().keys()


def test_three_alerts_of_the_page_ask_only_for_exported_metrics() -> None:
    page = (CONF.parent / "docs" / "is_it_for_me.md").read_text(encoding="utf-8")
    (rules,) = [yaml.safe_load(block.text) for block in blocks_of(page) if block.language == "yaml"]
    asked = [NAME.findall(rule["expr"]) for rule in rules]
    assert len(asked) == 3
    assert all(names and set(names) <= exported().keys() for names in asked)


def test_labels_that_are_asked_for_exist() -> None:
    texts = [*expressions(), *alert_expressions()]
    groups = [one for text in texts for one in re.findall(r"\b(?:by|on) \(([\w, ]+)\)", text)]
    asked = {name for one in groups for name in one.split(", ")}
    asked |= {name for text in texts for name in re.findall(r"[{,] *(\w+)=", text)}
    assert asked <= LABELS | ADDED_BY_PROMETHEUS
    legends = [target["legendFormat"] for panel in panels() for target in panel["targets"]]
    written = {name for text in legends for name in re.findall(r"{{(\w+)}}", text)}
    assert written <= LABELS | ADDED_BY_PROMETHEUS


def test_every_panel_asks_the_chosen_group_and_says_what_it_shows() -> None:
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            names = NAME.findall(target["expr"])
            assert target["expr"].count('group="$group"') == len(names), target["expr"]


def test_panels_do_not_overlap() -> None:
    places = [each["gridPos"] for each in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(places)


def test_parentheses_are_closed() -> None:
    for text in (*expressions(), *alert_expressions()):
        for opening, closing in ("()", "[]", "{}"):
            assert text.count(opening) == text.count(closing), text
