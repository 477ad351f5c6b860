"""`sasl.jaas.config` as people write it."""

from __future__ import annotations

import pytest

from spark_groups.wire.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="wonder";', ("alice", "wonder")),
        (f"{PLAIN} required username=alice password=wonder ;", ("alice", "wonder")),
        (f'{PLAIN} REQUIRED\n  username = "al;ce"\n  password="a = b";\n', ("al;ce", "a = b")),
        (rf'{PLAIN} required username="a" password="a\"b\\c\n";', ("a", 'a"b\\c\n')),
        (f'// who\n{PLAIN} required # why\n username="a" /* ; */ password="";', ("a", "")),
    ],
)
def test_a_module_with_its_options_is_read(text: str, options: tuple[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == PLAIN
    assert (module.options["username"], module.options["password"]) == options
    assert "wonder" not in repr(module)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is not: some.LoginModule required"),
        ("alice:secret-1", "it is not: some.LoginModule required"),
        (f'{PLAIN} required username="alice" password="secret-1"', "it is not"),
        (f'{PLAIN} needed username="alice" password="secret-1";', "must be one of required"),
        (f'{PLAIN} required password="secret-1; username="a";', "is a quote open"),
        (f'{PLAIN} required password="secret-1"; {PLAIN} required;', "more than one login module"),
        (f'{PLAIN} required password;"secret-1";', "more than one login module"),
        (f'{PLAIN} required password="secret-1" username;', "it is not"),
    ],
)
def test_what_cannot_be_read_is_refused_without_its_values(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        parse_jaas(text)
    assert "secret-1" not in str(raised.value)
