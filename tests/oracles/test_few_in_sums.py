"""Sums that are nearly of few clients, or whose low digits are, are found."""

import numpy as np
import pytest

from securevfl.audit.recorded_runs import RunFactory
from securevfl.data import VerticalDataset
from securevfl.protocols.base.coded import CodedProtocol, SharedModels
from securevfl.testing.runs import make
from securevfl.verified import bare_of
from tests.oracles.bare_sums import apart_at_first, few_in_low_digits, integers_of

SOUND = ["fedvs", "coded_split", "split"]


def few_in_low(protocol, made):
    """Clients that alone are in the low digits of sums: by all rows, and by models of a run."""
    if not isinstance(made, (CodedProtocol, SharedModels)):
        return ""
    if isinstance(made, SharedModels):  # models stay in shares after the first one
        parties = made.parties()
        models = [{n: integers_of(made, parties[n])[1] for n in range(made.owners)}]
    else:
        used = RunFactory(made).run().models
        rounds = sorted(set.intersection(*(set(own) for own in used.values())))
        models = [{n: used[n][r] for n in used} for r in rounds]
    return few_in_low_digits(protocol, models)


@pytest.mark.parametrize("name", SOUND)
def test_sound_first_models_make_parts_of_one_size(name):
    made = make(name)
    assert apart_at_first(made, made.parties()) == ""


@pytest.mark.parametrize("name", ["fedvs", "coded_split"])
def test_sound_sums_have_low_digits_of_all(name):
    assert few_in_low(make(name), make(name)) == ""


@pytest.mark.parametrize("name", ["fedvs"])
@pytest.mark.parametrize(("large", "told"), [(1, True), (2, True), (3, False)])
def test_weights_of_another_size_are_found(name, large, told):
    """With T = 1 three clients must be in each sum."""
    made = make(name)
    parties = made.parties()
    for n in made.peers()[large:]:
        bare_of(parties[n].network).weight.data *= 0.01
    found = apart_at_first(made, parties)
    assert bool(found) is told
    assert not told or f"of clients {[*range(large)]} are more than 10 times" in found


@pytest.mark.parametrize(("fine", "told"), [(1, True), (2, True), (3, False)])
def test_weights_on_a_lattice_are_found(fine, told):
    made, rng = make("fedvs"), np.random.default_rng(0)
    columns, h = made.quantised_columns(), made.config.width
    models = {n: rng.integers(-(2**17), 2**17, (own.shape[-1], h)) for n, own in columns.items()}
    models = {n: own if n < fine else own // 256 * 256 for n, own in models.items()}
    found = few_in_low_digits(made, [{n: made.code.field.reduce(own) for n, own in models.items()}])
    assert bool(found) is told
    assert (
        not told or f"modulo 256, which the server learns, are of clients {[*range(fine)]}" in found
    )


def test_columns_on_a_lattice_are_found():
    rng = np.random.default_rng(3)
    parts = [rng.random((60, 1)), *(1.0 * rng.integers(0, 2, (60, 3)) for _ in range(5))]
    labels = (parts[0][:, 0] > 0.5).astype(int)
    data = VerticalDataset.from_numpy(parts, labels, test_fraction=0.25)
    for name in ("fedvs", "coded_split"):
        assert "of clients [0] alone" in few_in_low(make(name, data), make(name, data))


@pytest.mark.parametrize("name", ["fedvs", "coded_split"])
def test_columns_of_few_or_rare_numbers_are_no_fault(name):
    """Clients whose columns are nearly constant, or depend on each other, are in the sums, too."""
    rng = np.random.default_rng(0)
    rare = [1.0 * (rng.random((200, 6)) < 0.01) * rng.random((200, 6)) for _ in range(3)]
    alike = [rng.random((200, 1)) + 0.01 * rng.random((200, 6)) for _ in range(3)]
    data = VerticalDataset.from_numpy(rare + alike, rng.integers(0, 2, 200), test_fraction=0.25)
    made = make(name, data)
    assert apart_at_first(made, made.parties()) == ""
    assert few_in_low(made, make(name, data.subset(20, 10))) == ""
