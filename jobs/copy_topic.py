"""Runs spark_groups.jobs.copy_topic for spark-submit; --help has an example."""

import runpy

runpy.run_module("spark_groups.jobs.copy_topic", run_name="__main__", alter_sys=True)
