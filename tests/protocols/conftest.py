"""What tests of protocols share."""

import pytest

from securevfl.verified.prove import Prover
from securevfl.verified.traced import proofs
from tests.protocols.faulty import checked_here, unasked


@pytest.fixture(autouse=True)
def _no_two_inputs_are_looked_for(monkeypatch):
    monkeypatch.setattr(Prover, "_violated", unasked)


@pytest.fixture(autouse=True)
def _certificates_are_checked_here(monkeypatch):
    """A process for each method would import the library again; in tests/verified one has it."""
    monkeypatch.setattr(proofs, "_elsewhere", checked_here)
