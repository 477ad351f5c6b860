"""Chaos: a real group on a real broker, with faults drawn from a seed.

    make chaos MINUTES=12 SEED=7

- `members`: processes that read: queries, Spark applications, plain consumers; their notes.
- `faults`: faults that are drawn, those that hit brokers, networks, disks, clocks and topics, and
  what an operator does between two runs.
- `systems`: brokers and their records, and the sinks.
- `results`: notes become facts; facts become an account, a report and a page.

`schedule`, `network_schedule`, `link`, `record`, `facts`, `commit_history`, `account`, `recovery`,
`report` and `timeline` decide and are pure; the rest starts processes, sends signals and writes
files.
"""
