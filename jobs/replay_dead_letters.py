"""Runs spark_groups.jobs.replay_dead_letters for spark-submit; --help has an example."""

import runpy

runpy.run_module("spark_groups.jobs.replay_dead_letters", run_name="__main__", alter_sys=True)
