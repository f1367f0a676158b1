"""Sums whose entries come to have too few terms while models are trained are found."""

import numpy as np
import pytest

from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.oracles.bare_sums import bare_at_first, bare_at_last, other_sums, parts_of


@pytest.mark.parametrize("name", ["fedvs", "coded_split"])
def test_sound_sums_keep_their_terms(name):
    made = make(name)
    parties = made.parties()
    parts = parts_of(made, parties)
    assert parts.shape == (len(made.peers()), made.config.width)
    assert parts.max() == 1
    assert bare_at_first(made, parties) == bare_at_last(made, parts, parties) == ""


@pytest.mark.parametrize(("keeping", "bare"), [(1, True), (2, True), (3, False)])
def test_an_entry_that_only_some_clients_keep_is_found(keeping, bare):
    made = make("fedvs")
    parties = made.parties()
    parts = parts_of(made, parties)
    for n in made.peers()[keeping:]:
        bare_of(parties[n].network).weight.data[:, 1] *= 1e-4
    found = bare_at_last(made, parts, parties)
    assert bool(found) == bare
    if bare:
        assert found.startswith("to 1 of 6 entries of the summed embedding fewer than 3 clients")
        assert found.endswith(f"when a run ends: entry 1 is that of clients {[*range(keeping)]}")


def test_what_was_little_at_first_may_stay_so():
    made = make("fedvs")
    parties = made.parties()
    for n in made.peers()[1:]:
        bare_of(parties[n].network).weight.data[:, 1] *= 1e-4
    assert bare_at_first(made, parties) == ""  # a millionth is nothing, and this is more
    parts = parts_of(made, parties)
    assert (parts[:, 1] > 1e-2).sum() == 1
    assert bare_at_last(made, parts, parties) == ""


def test_entries_that_shrink_while_models_are_trained_are_found(monkeypatch):
    """Group sparsity: each network keeps one entry, and thins out the others in every step."""
    update = PolynomialNetwork.update
    made: list[PolynomialNetwork] = []

    def thinned(self, *given):
        beyond = update(self, *given)
        made.extend([self] * (self not in made))
        others = np.arange(self.weight.shape[1]) != made.index(self)
        self.weight.data[:, others] *= 0.05
        return beyond

    monkeypatch.setattr(PolynomialNetwork, "update", thinned)
    ended = simulate("fedvs", rounds=4)
    fresh = ended.protocol.parties()
    found = bare_at_last(ended.protocol, parts_of(ended.protocol, fresh), ended.parties)
    assert "fewer than 3 clients add anything when a run ends" in found


@pytest.mark.parametrize("name", ["fedvs", "split", "wait_dp", "dvfl"])
def test_servers_step_with_means_of_whole_embeddings(name):
    assert other_sums(make(name)) == ""


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_embeddings_that_are_rounded_to_few_bits_are_whole(bits):
    assert other_sums(make("fedvs", data_bits=bits, model_bits=bits, width=32)) == ""


@pytest.mark.parametrize("name", ["split"])
def test_sums_of_parts_of_embeddings_are_found(monkeypatch, name):
    """Dropout: every client is summed, but to each entry few of them add."""
    made = make(name)
    clients = {type(made.parties()[n]) for n in made.peers()}
    for cls in clients:
        embed = cls.embed

        def dropped(self, own, embed=embed):
            embedding = embed(self, own)
            kept = 3 * (np.arange(embedding.shape[1]) % 3 == self.index % 3)
            return embedding.map(lambda H: H * kept)

        monkeypatch.setattr(cls, "embed", dropped)
    assert "are not those of the mean of the embeddings of clients" in other_sums(made)
