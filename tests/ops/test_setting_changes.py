"""Changes of settings, before they are sent and after."""

from __future__ import annotations

import pytest

from spark_groups.errors import OptionsError
from spark_groups.ops.setting_changes import (
    SettingChange,
    are_in_force,
    check_changes,
    parse_changes,
    view_settings,
)
from spark_groups.wire.configuration import ConfigOrigin
from spark_groups.wire.group_settings import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupSetting,
    GroupSettings,
)

HEARTBEAT = GroupSetting(
    name=HEARTBEAT_INTERVAL_MS,
    value="5000",
    origin=ConfigOrigin.DEFAULT,
    minimum=100,
    maximum=15000,
    inherited="5000",
)
OWN_SESSION = GroupSetting(
    name=SESSION_TIMEOUT_MS,
    value="50000",
    origin=ConfigOrigin.GROUP,
    minimum=45000,
    maximum=None,
    inherited="45000",
)
SWITCH = GroupSetting(name="consumer.switch", value="true", origin=ConfigOrigin.DEFAULT)
SETTINGS = GroupSettings(settings=(HEARTBEAT, OWN_SESSION, SWITCH))


def test_changes_are_read() -> None:
    assert parse_changes(["a=1", " b = x=y "], ["c"]) == {"a": "1", "b": "x=y", "c": None}
    assert parse_changes([], []) == {}


@pytest.mark.parametrize(
    ("set_values", "unset", "says"),
    [
        (["a"], [], "--set 'a' is not name=value"),
        (["=1"], [], "--set '=1' is not name=value"),
        (["a="], [], "to take it away: --unset"),
        (["a=1", "a=1"], [], "--set a is given twice"),
        ([], ["a", "a"], "--unset a is given twice"),
        (["a=1"], ["a"], "a is given to --set and to --unset"),
        ([], ["a=1"], "--unset 'a=1' is not a name"),
        ([], [""], "--unset '' is not a name"),
        (["a", "b=1", "b=2"], ["c="], "'a' is not.*; --set b is given twice; --unset 'c='"),
    ],
)
def test_what_is_malformed_is_all_listed(set_values, unset, says: str) -> None:
    with pytest.raises(OptionsError, match=says):
        parse_changes(set_values, unset)


@pytest.mark.parametrize(
    "changes",
    [
        {HEARTBEAT_INTERVAL_MS: "100"},
        {HEARTBEAT_INTERVAL_MS: "15000", SESSION_TIMEOUT_MS: None},
        {SESSION_TIMEOUT_MS: "45000"},
        {SESSION_TIMEOUT_MS: "999999999"},
        {"consumer.switch": "false"},
    ],
)
def test_what_the_broker_takes_is_let_through(changes) -> None:
    check_changes(changes, SETTINGS)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {HEARTBEAT_INTERVAL_MS: "99"},
            "consumer.heartbeat.interval.ms=99 is out of range: the broker takes at least 100"
            " (group.consumer.min.heartbeat.interval.ms) and at most 15000"
            " (group.consumer.max.heartbeat.interval.ms)",
        ),
        ({HEARTBEAT_INTERVAL_MS: "15001"}, "consumer.heartbeat.interval.ms=15001 is out of range"),
        (
            {SESSION_TIMEOUT_MS: "44999"},
            "consumer.session.timeout.ms=44999 is out of range: the broker takes at least 45000"
            " (group.consumer.min.session.timeout.ms)",
        ),
        ({SESSION_TIMEOUT_MS: "1m"}, "consumer.session.timeout.ms=1m is not a whole number"),
        ({SESSION_TIMEOUT_MS: "1_0"}, "is not a whole number"),
        ({"consumer.heartbeat.intervall.ms": "1"}, "did you mean consumer.heartbeat.interval.ms?"),
        ({"session.timeout.ms": None}, "did you mean consumer.session.timeout.ms?"),
        ({"zzz": None}, "it has consumer.heartbeat.interval.ms, consumer.session.timeout.ms, con"),
        ({"zzz": None, SESSION_TIMEOUT_MS: "1"}, "is out of range"),
    ],
)
def test_what_the_broker_would_refuse_is_refused_first(changes, says: str) -> None:
    with pytest.raises(OptionsError) as refused:
        check_changes(changes, SETTINGS)
    assert says in str(refused.value)
    assert str(refused.value).count(";") == len(changes) - 1


def test_what_is_not_known_is_left_to_the_broker() -> None:
    check_changes({"zzz": "1"}, GroupSettings(reason="refused", group_is_known=False))
    brokers_only = GroupSettings(settings=(HEARTBEAT,), reason="refused", group_is_known=False)
    check_changes({"consumer.newer": "1", HEARTBEAT_INTERVAL_MS: "900"}, brokers_only)
    with pytest.raises(OptionsError, match="out of range"):
        check_changes({HEARTBEAT_INTERVAL_MS: "99"}, brokers_only)


@pytest.mark.parametrize(
    ("changes", "are"),
    [
        ({SESSION_TIMEOUT_MS: "50000"}, True),
        ({SESSION_TIMEOUT_MS: "50001"}, False),
        ({SESSION_TIMEOUT_MS: None}, False),
        ({HEARTBEAT_INTERVAL_MS: None}, True),
        # The group's own value may be the very one that it would inherit.
        ({HEARTBEAT_INTERVAL_MS: "5000"}, False),
        ({"zzz": None}, False),
    ],
)
def test_changes_are_in_force_when_the_broker_shows_them(changes, are: bool) -> None:
    assert are_in_force(changes, SETTINGS) is are


def test_a_view_has_what_was_changed_as_plain_values() -> None:
    before = GroupSettings(settings=(HEARTBEAT,), reason="not everything")
    view = view_settings("g", SETTINGS, {SESSION_TIMEOUT_MS: "50000"}, before)
    assert view.changed == (SettingChange(SESSION_TIMEOUT_MS, None, "50000"),)
    plain = view.to_json()
    assert plain["settings"][1] == {
        "name": SESSION_TIMEOUT_MS,
        "value": "50000",
        "origin": "group",
        "minimum": 45000,
        "maximum": None,
        "inherited": "45000",
    }
    assert plain["changed"] == [{"name": SESSION_TIMEOUT_MS, "before": None, "after": "50000"}]
    assert (plain["group_id"], plain["reason"]) == ("g", "")
