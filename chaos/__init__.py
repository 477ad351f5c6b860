"""Members of one consumer group on a real broker, faults drawn from a seed, and an account of it.

    make chaos MINUTES=12 SEED=7

`schedule`, `members`, `link`, `record`, `facts`, `account`, `recovery`, `report` and `timeline`
decide and are pure; the rest starts processes, sends signals and writes files.
"""
