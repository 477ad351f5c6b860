"""Tokens, and when the next one is fetched."""

from __future__ import annotations

import pytest

from spark_groups.wire.security.bearer_token import BearerToken, refresh_at_ms

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("lifetime_ms", "chance", "expected_ms"),
    [
        (60 * MINUTE_MS, 0.0, 48 * MINUTE_MS),
        (60 * MINUTE_MS, 1.0, 51 * MINUTE_MS),
        # 15 minutes, as of Amazon MSK: 5 minutes before the end is sooner than 80 %.
        (15 * MINUTE_MS, 0.5, 10 * MINUTE_MS),
        # Shorter than 60 s and 300 s together: only the share counts.
        (5 * MINUTE_MS, 0.0, 4 * MINUTE_MS),
        (10_000, 1.0, 8_500),
    ],
)
def test_a_token_is_renewed_when_kafkas_own_client_renews_it(
    lifetime_ms: int, chance: float, expected_ms: int
) -> None:
    now_ms = 1_795_000_000_000
    token = BearerToken("abc", now_ms + lifetime_ms)
    assert refresh_at_ms(token, now_ms, chance) - now_ms == pytest.approx(expected_ms)


def test_a_token_shows_no_secret() -> None:
    token = BearerToken("hush-123456", 1, "alice", (("logicalCluster", "lkc-1"),))
    assert repr(token) == (
        "BearerToken(expires_at_ms=1, principal='alice', extensions=(('logicalCluster', 'lkc-1'),))"
    )


@pytest.mark.parametrize(
    ("text", "expires_at_ms", "extensions", "says"),
    [
        ("", 1, (), "not a text of printable"),
        ("hush\x01auth=Bearer other", 1, (), "not a text of printable"),
        (b"hush", 1, (), "not a text of printable"),
        ("hush", "soon", (), "the expiry is not a number"),
        ("hush", float("nan"), (), "the expiry is not a number"),
        ("hush", True, (), "the expiry is not a number"),
        ("hush", 1, (("auth", "x"),), "'auth' cannot name a SASL extension"),
        ("hush", 1, (("a-b", "x"),), "'a-b' cannot name a SASL extension"),
        ("hush", 1, (("a", "x\x01b=y"),), "the SASL extension a is empty, or not printable"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    text: str, expires_at_ms: int, extensions: tuple[tuple[str, str], ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        BearerToken(text, expires_at_ms, extensions=extensions)
    assert "hush" not in str(raised.value)
