"""Runs spark_groups.jobs.consume for spark-submit; --help has an example."""

import runpy

runpy.run_module("spark_groups.jobs.consume", run_name="__main__", alter_sys=True)
