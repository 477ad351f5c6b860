"""Runs spark_groups.jobs.count_by_window for spark-submit; --help has an example."""

import runpy

runpy.run_module("spark_groups.jobs.count_by_window", run_name="__main__", alter_sys=True)
