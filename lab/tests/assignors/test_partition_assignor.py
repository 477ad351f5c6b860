"""The interface of client-side assignors has the names of KIP-848's PartitionAssignor."""

from __future__ import annotations

import re

from group_lab.assignors import partition_assignor
from group_lab.assignors.partition_assignor import PartitionAssignor, TopologyAssignor

CLASSES = (
    "Metadata AssignmentSpec AssignmentMemberSpec AssignmentTopicMetadata GroupAssignment"
    " MemberAssignment AssignorMetadata"
)
METHODS = "name minimumVersion maximumVersion metadata assign onAssignment"


def test_classes_and_methods_have_the_names_of_the_kip() -> None:
    assert [each for each in CLASSES.split() if not hasattr(partition_assignor, each)] == []
    methods = {re.sub(r"([A-Z])", r"_\1", each).lower() for each in METHODS.split()}
    assert {each for each in vars(PartitionAssignor) if not each.startswith("_")} == methods
    assert methods <= set(dir(TopologyAssignor))
