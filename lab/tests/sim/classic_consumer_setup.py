"""Shared by test_classic_consumer.py and other tests."""

from __future__ import annotations

from typing import Any

import pytest

from group_lab.sim.classic_membership import Assigned, ClassicMembership
from group_lab.sim.embedded_protocols import Received

Patch = pytest.MonkeyPatch


def keeps_what_it_must_revoke(patch: Patch) -> None:
    take, join = ClassicMembership._take, ClassicMembership._join_request

    def taken(self: ClassicMembership, received: Received) -> None:
        assigned = received.owned
        if not self._embedded.is_cooperative or not self.owned - assigned:
            take(self, received)
            return
        self._received, self._needs_join = None, True
        self.events.append(Assigned(assigned, assigned - self.owned))
        self.owned |= assigned
        patch.setattr(self, "said", assigned, raising=False)

    def joined(self: ClassicMembership) -> Any:
        owned = self.owned
        self.owned = getattr(self, "said", owned) & owned
        request = join(self)
        self.owned = owned
        return request

    patch.setattr(ClassicMembership, "_take", taken)
    patch.setattr(ClassicMembership, "_join_request", joined)
