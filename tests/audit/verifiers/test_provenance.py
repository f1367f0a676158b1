"""Sources of secrets: first weights that are public, columns that are not a client's."""

import numpy as np
import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.provenance import Sources, _alike, _altered_columns, _weak_masks
from securevfl.engine import streams
from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.registry import find_protocols, get_protocol
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.testing.runs import make

# -- verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
def test_first_weights_that_do_not_follow_from_the_entropy_are_found(monkeypatch, protocol):
    made = make(protocol)
    claim = next(one for one in made.claims if one.strength != "none")
    assert Sources().applies(claim, made)
    assert "gap" not in {one.bearing for one in examined(claim, made)}
    monkeypatch.setattr(streams.WithPlaceholders, "stream", from_the_name)
    found = [one.text for one in examined(claim, made) if one.bearing == "gap"]
    assert any("differ in the last byte alone" in one for one in found)


def test_a_protocol_without_embeddings_is_examined_all_the_same():
    class Bare(get_protocol("coded_split")):
        def embed(self, client, rows):
            return None

    made = make(Bare)
    claim = next(one for one in made.claims if one.strength != "none")
    assert "gap" not in {one.bearing for one in examined(claim, made)}


def from_the_name(self, index, name, *keys):
    """Streams below a party's own entropy that everybody can compute; it is asked all the same."""
    if index == self.own.index:
        self.own.stream(index, name, *keys)
    return streams.keyed_stream(0, index, name, *keys)


def examined(claim, made):
    return list(Sources().examine(claim, Subject(made), seed=0, level=1e-7))


@pytest.mark.parametrize("protocol", ["split", "dvfl"])
def test_claims_that_rest_on_no_secret_choices_are_not_concerned(protocol):
    made = make(protocol)
    assert not any(Sources().applies(claim, made) for claim in made.claims)


def starting_with(first):
    """FedVS whose clients' first weights are ``first(common, own)``."""

    def network(self, index, **more):
        made = FedVS.network(self, index, **more)
        common = keyed_stream(self.seed, SERVER, "beginning").uniform(-1, 1, made.values.shape)
        made.values[:] = first(common.astype(np.float32), made.values)
        return made

    return type("Beginning", (FedVS,), {"network": network, "__doc__": "Planted leak."})


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (lambda common, own: np.vstack([own[:1], common[1:]]), "equal rows or columns"),
        (lambda common, own: np.hstack([common[:, :-1], own[:, -1:]]), "equal rows or columns"),
        (lambda common, own: common * (own != 0) + own / 100, "numbers that hardly differ"),
        (lambda common, own: common, "the same arrays"),
    ],
)
def test_first_weights_of_the_public_seed_are_found_where_a_part_is_secret(first, words):
    assert words in _alike(Subject(make(starting_with(first))), 0)


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_sound_parties_have_no_array_that_is_partly_of_the_public_seed(name):
    subject = Subject(make(name))
    roles = subject.protocol.roles().values()
    assert [_alike(subject, numbers[0]) for numbers in roles if numbers] == [""] * sum(
        bool(numbers) for numbers in roles
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda powers: powers * (np.arange(len(powers))[:, None] % 16 != 15), "not all zero"),
        (lambda powers: powers + 0.25, "other numbers than its columns"),
        (lambda powers: powers / np.where(np.arange(len(powers)) % 9, 1, 64)[:, None], "other"),
    ],
)
def test_shared_columns_that_are_not_the_clients_are_found(monkeypatch, change, words):
    assert _altered_columns(make("fedvs", segments=2, degree=2)) == ""

    def changed(public, features, part):
        powers = change(expand(features, public.config.degree)).astype(np.float32)
        return public.batches[part].lay_out(public.data_point.quantize(powers)), 1

    monkeypatch.setattr("securevfl.protocols.fedvs.protocol.quantised_data", changed)
    cls = type("Changed", (FedVS,), {"check_sizes": lambda self: None, "__doc__": "Planted."})
    made = make(cls, segments=2, degree=2)
    assert words in _altered_columns(made)


def drawing(change):
    """FedVS whose clients' draws go through `change`, of the draw and the one before."""
    base = get_protocol("fedvs")

    def parties(self):
        made = base.parties(self)
        for n in self.peers():
            change_draws(made[n])
        return made

    def change_draws(client):
        draw, before = client.uniform, [None]

        def uniform(shape):
            found = draw(shape)
            found, before[0] = change(found, before[0], client.round), found
            return found

        client.uniform = uniform

    return type("Drawing", (base,), {"parties": parties, "__doc__": "Planted leak."})


@pytest.mark.parametrize(
    ("change", "assets", "words"),
    [
        (lambda now, before, round: now, set(), ""),
        (lambda now, before, round: now * 0 if round == 3 else now, {"model"}, "come again"),
        (lambda now, before, round: now if round else now // 2, {"features"}, "upper quarter"),
        (
            lambda now, before, round: np.repeat(now[:, ::2], 2, axis=1)[:, : now.shape[1]],
            {"features", "model"},
            "come again",
        ),
    ],
)
def test_masks_that_are_zero_repeated_or_small_violate_the_claim(change, assets, words):
    found = dict(_weak_masks(Subject(make(drawing(change))).run))
    assert set(found) == assets
    assert all(words in text for text in found.values())


def test_small_primes_have_equal_masks_by_chance():
    made = make("fedvs", prime=2**31 - 1, data_bits=6, model_bits=6, weight_bound=2.0, segments=1)
    assert dict(_weak_masks(Subject(made).run)) == {}
