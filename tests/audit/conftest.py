"""What tests of verdicts share."""

import contextlib

import pytest

from securevfl.verified import UNDISTURBED
from securevfl.verified.traced import proofs


@contextlib.contextmanager
def undisturbed():
    """Proofs of the schedule in which nobody is late, checked in this process.

    Schedules, and the check in another process, have tests of their own: each costs as much again.
    """

    def here(path):
        found = proofs.check_certificate(path)
        return {",".join(map(str, who)): why or "" for who, why in found.items()}, ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proofs.Traced, "schedules", lambda traced: (UNDISTURBED,))
        patch.setattr(proofs, "_elsewhere", here)
        yield


@pytest.fixture
def nobody_late():
    """The test's proofs are `undisturbed`."""
    with undisturbed():
        yield
