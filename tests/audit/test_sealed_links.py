"""Faults of links over incarnations."""

from typing import Any, ClassVar

import pytest

from securevfl.audit.sealed_links import lives_that_meet
from securevfl.engine.security.sealing import Sealer


class TakesAnyKey(Sealer):
    """Forgets which keys a peer had."""

    def _take(self, peer, public):
        self._used.clear()
        super()._take(peer, public)


class KeepsTheFirstKey(Sealer):
    """Counts from 0 again at a peer's new life, under the key of the first one."""

    def renew(self, peer, public):
        first = self._public[peer]
        self._used.clear()
        super().renew(peer, first)


class OneKeyForAll(Sealer):
    """All lives of a party have one key pair, as where it is derived from a seed."""

    PAIRS: ClassVar[dict[int, Any]] = {}

    def __init__(self, protocol, run, index, secret=None):
        super().__init__(protocol, run, index, self.PAIRS.get(index, secret))
        self.PAIRS.setdefault(index, self._secret)

    def _take(self, peer, public):
        self._used.clear()
        super()._take(peer, public)


def test_the_links_of_runs_keep_lives_apart():
    assert lives_that_meet(Sealer) == []


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        (TakesAnyKey, "a key that a party had before is accepted again"),
        (KeepsTheFirstKey, "a frame of an earlier life is accepted"),
        (OneKeyForAll, "a frame of an earlier life is accepted"),
    ],
)
def test_lives_that_meet_are_caught(planted, fault):
    assert fault in lives_that_meet(planted)
