"""The verifier of noise: planted faults are found, and sound noise is not blamed."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.noise import Noise
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge
from securevfl.engine.party import SERVER
from securevfl.field.sampling import SeededSource
from securevfl.privacy import accountant, mechanisms
from securevfl.privacy.claims import Claim, Guarantee
from securevfl.privacy.mechanisms import clip_rows, gaussian, release_rows
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make, tiny_data

LEVEL = 1e-7
WAIT = {"noise": "secure", "epsilon": 5.0, "rounds": 6, "width": 12}
OWNERS = {"epsilon": 5.0, "rounds": 4, "width": 12, "label_owners": 2}


def differential(protocol, asset):
    return next(c for c in protocol.claims if (c.asset, c.strength) == (asset, "differential"))


def verdict(cls, asset="features", **options):
    """Verdict of the verifier of noise alone."""
    made = make(cls, tiny_data().with_parties(2), **options)
    return judge(differential(made, asset), Subject(made), [Noise()])


def planted(name, plant):
    """A method whose parties ``plant(parties)`` has changed."""
    base = get_protocol(name)

    def parties(self):
        made = base.parties(self)
        plant(made)
        return made

    return type("Planted", (base,), {"parties": parties, "__doc__": "Planted fault."})


def released(rows, factor=1.0, noise=None, bound=1.0, sigma=1.0):
    """The library's release with other noise."""
    drawn = gaussian(rows.shape) if noise is None else noise
    return (clip_rows(rows, bound) + factor * sigma * drawn).astype(np.float32)


def by_client(make_release, only=None):
    """Every client, or one of them, releases by ``make_release(client, rows, bound, sigma)``."""

    def plant(made):
        for n, client in made.items():
            if n != SERVER and only in (None, n):
                client.release = lambda rows, client=client: make_release(
                    client, rows, client.privacy.clip, client.privacy.sigma
                )

    return plant


def seeded(*parts):
    return SeededSource(hashlib.sha256(repr(parts).encode()).digest())


def eighth(client, rows, bound, sigma):
    return release_rows(rows, bound=bound, sigma=sigma / 8)


def tenth_less(client, rows, bound, sigma):
    return release_rows(rows, bound=bound, sigma=sigma * 0.9)


def of_the_round(client, rows, bound, sigma):
    return release_rows(rows, bound=bound, sigma=sigma, source=seeded(client.index, client.round))


def of_the_secret_seed(client, rows, bound, sigma):
    key = client.secret_stream("noise", client.round).bytes(32)
    return release_rows(rows, bound=bound, sigma=sigma, source=SeededSource(key))


def of_the_rows(client, rows, bound, sigma):
    return release_rows(rows, bound=bound, sigma=sigma, source=seeded(rows.tobytes()))


def first_noise_again(client, rows, bound, sigma):
    if not hasattr(client, "drawn"):
        client.drawn = gaussian(rows.shape)
    return released(rows, noise=client.drawn, bound=bound, sigma=sigma)


def one_value_a_row(client, rows, bound, sigma):
    noise = np.repeat(gaussian((len(rows), 1)), rows.shape[1], axis=1)
    return released(rows, noise=noise, bound=bound, sigma=sigma)


def one_noise_for_all_rows(client, rows, bound, sigma):
    noise = np.repeat(gaussian((1, rows.shape[1])), len(rows), axis=0)
    return released(rows, noise=noise, bound=bound, sigma=sigma)


def not_clipped(client, rows, bound, sigma):
    return released(rows, bound=1e9, sigma=sigma)


def first_row_exact(client, rows, bound, sigma):
    noise = gaussian(rows.shape)
    noise[0] = 0
    return released(rows, noise=noise, bound=bound, sigma=sigma)


def first_entry_exact(client, rows, bound, sigma):
    noise = gaussian(rows.shape)
    noise[:, 0] = 0
    return released(rows, noise=noise, bound=bound, sigma=sigma)


def exact_from_round_five(client, rows, bound, sigma):
    return released(rows, factor=client.round < 5, bound=bound, sigma=sigma)


def uniform_noise(client, rows, bound, sigma):
    noise = np.random.Generator(np.random.Philox()).uniform(-(3**0.5), 3**0.5, rows.shape)
    return released(rows, noise=noise, bound=bound, sigma=sigma)


def along_the_rows(client, rows, bound, sigma):
    return released(rows + sigma * rows, bound=1e9, sigma=sigma)


FAULTS = [
    eighth,
    tenth_less,
    of_the_round,
    of_the_secret_seed,
    of_the_rows,
    first_noise_again,
    one_value_a_row,
    one_noise_for_all_rows,
    not_clipped,
    first_row_exact,
    first_entry_exact,
    exact_from_round_five,
    uniform_noise,
    along_the_rows,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_embeddings_is_found(fault):
    found = verdict(planted("wait_dp", by_client(fault)), **WAIT)
    assert found.verdict == "VIOLATED", found.words


@pytest.mark.parametrize("fault", [eighth, of_the_round, first_row_exact])
def test_a_fault_of_one_client_is_found(fault):
    found = verdict(planted("wait_dp", by_client(fault, only=1)), **WAIT)
    assert found.verdict == "VIOLATED", found.words


def test_a_common_noise_of_all_clients_is_found():
    def plant(made):
        drawn = {}

        def common(client, rows, bound, sigma):
            noise = drawn.setdefault(client.round, gaussian(rows.shape))
            return released(rows, noise=noise, bound=bound, sigma=sigma)

        by_client(common)(made)

    found = verdict(planted("wait_dp", plant), **WAIT)
    assert found.verdict == "VIOLATED", found.words


def test_a_second_release_in_one_payload_is_found():
    """A pair of arrays has the declared shape, for the first may name rows."""

    def twice(client, rows, bound, sigma):
        one, two = (release_rows(rows, bound=bound, sigma=sigma) for _ in range(2))
        return (one, two)

    def plant(made):
        by_client(twice)(made)
        join = made[SERVER].join
        made[SERVER].join = lambda uploads, samples: join(
            {n: two for n, (_, two) in uploads.items()}, samples
        )

    found = verdict(planted("wait_dp", plant), **WAIT)
    assert found.verdict == "VIOLATED"
    assert "besides its rows it holds something else" in found.words


def test_noise_that_each_row_keeps_is_found():
    """It repeats only where a row is released again, in the second epoch."""

    def plant(made):
        for n, client in made.items():
            if n != SERVER:
                noise = gaussian((len(client.features), client.network.forward(
                    client.features[:1]).shape[1]))  # fmt: skip

                def release(rows, client=client, noise=noise):
                    named = client.batches.samples(client.batches.draw(client.round))
                    privacy = client.privacy
                    return released(rows, 1.0, noise[named], privacy.clip, privacy.sigma)

                client.release = release

    found = verdict(planted("wait_dp", plant), **WAIT | {"rounds": 4})
    assert found.verdict == "VIOLATED"
    assert "with batch = " in found.words


def test_rows_that_are_asked_for_again_are_found():
    def plant(made):
        batches = made[SERVER].batches
        first, drawn = batches.draw(1), batches.draw
        for party in made.values():
            party.limit = 100
        made[SERVER].batches.draw = lambda round: first if round > 1 else drawn(round)

    found = verdict(planted("wait_dp", plant), **WAIT)
    assert found.verdict == "VIOLATED"
    assert "times, and epsilon is of" in found.words


def test_no_clipping_is_found_where_the_bound_cuts_no_row():
    found = verdict(planted("wait_dp", by_client(not_clipped)), **WAIT | {"clip": 50.0})
    assert found.verdict == "VIOLATED"
    assert ", clip = " in found.words


def test_noise_that_hides_the_missing_bound_is_taken_off():
    options = WAIT | {"epsilon": 0.01, "clip": 0.5}
    found = verdict(planted("wait_dp", by_client(not_clipped)), **options)
    assert found.verdict == "VIOLATED"
    assert "is not the clipped rows with that noise" in found.words


def test_noise_of_another_sampler_is_not_endorsed():
    """Its distribution is right, and where it is from cannot be seen."""

    def foreign(client, rows, bound, sigma):
        noise = np.random.Generator(np.random.Philox()).standard_normal(rows.shape)
        return released(rows, noise=noise, bound=bound, sigma=sigma)

    found = verdict(planted("wait_dp", by_client(foreign)), **WAIT)
    assert found.verdict == "NOT TESTED"
    assert "nobody knows who knows their noise" in found.words


def test_the_key_of_a_noise_in_a_message_is_found():
    from securevfl.audit.noise import origin
    from securevfl.audit.noise.releases import releases_of

    subject = Subject(make("wait_dp", tiny_data().with_parties(2), **WAIT))
    run, keys = subject.run, origin.system_keys(subject.log.keys)
    found = origin.origins(run, releases_of(run, "features").found, keys)
    assert all(one.equal for one in found)
    assert not list(origin.faults(run, found, keys, LEVEL))
    told = next(m for m in run.messages if m.key.kind == "round")
    object.__setattr__(told, "content", told.content + keys[found[0].key])
    assert [text for _, text in origin.faults(run, found, keys, LEVEL)] == [
        "the key of a noise is in a message"
    ]


@pytest.mark.parametrize("name", ["wait_dp", "multivfl"])
def test_a_release_in_a_round_that_does_not_exist_is_found(name):
    def plant(made):
        for client in made.values():
            send = client.send

            def sending(to, kind, payload, round=None, client=client, send=send, **more):
                send(to, kind, payload, round=round, **more)
                if kind == "embedding":
                    send(to, kind, payload, round=(round or client.round) + 1000)

            client.send = sending

    base = WAIT if name == "wait_dp" else OWNERS
    made = make(planted(name, plant), tiny_data().with_parties(2), **base)
    verifiers = [VERIFIERS.get("declared messages"), Noise()]
    found = judge(differential(made, "features"), Subject(made), verifiers)
    assert found.verdict == "VIOLATED"


def test_departure_times_that_tell_columns_are_found():
    def plant(made):
        for client in made.values():
            send = client.send

            def sending(to, kind, payload, client=client, send=send, **more):
                late = kind == "embedding" and float(client.features[0].sum()) * 1e-3 % 1
                send(to, kind, payload, after=late or 0.0, **more)

            client.send = sending

    found = verdict(planted("wait_dp", plant), **WAIT)
    assert found.verdict == "VIOLATED"
    assert "times of what server is sent are others" in found.words


# -- Gradients and labels ------------------------------------------------------------------------


def exact_gradient(made):
    made[SERVER].release = lambda gradient, samples: gradient


def gradient_of_less(made):
    server = made[SERVER]
    object.__setattr__(server.privacy, "epsilon", 50.0)


def gradient_of_the_round(made):
    from securevfl.privacy.mechanisms import release_gradient

    server = made[SERVER]
    server.release = lambda gradient, samples: release_gradient(
        gradient,
        samples,
        bound=server.privacy.gradient_clip,
        sigma=server.privacy.gradient_sigma,
        source=seeded(server.round),
    )


def a_release_for_each_client(made):
    def answer(batch, step):
        for n, gradient in step.gradients.items():
            more = gaussian(gradient.shape) * 1e-3
            made[SERVER].send(n, "gradient", (gradient + more).astype(np.float32))

    made[SERVER].answer = answer


@pytest.mark.parametrize(
    "fault", [exact_gradient, gradient_of_less, gradient_of_the_round, a_release_for_each_client]
)
def test_a_fault_of_gradients_is_found(fault):
    found = verdict(planted("wait_dp", fault), "labels", **WAIT, noise_on="gradients")
    assert found.verdict == "VIOLATED", found.words


def labels_exact(server):
    return server.labels


def labels_half_exact(server):
    from securevfl.privacy.mechanisms import randomised_response

    drawn = randomised_response(server.labels, server.classes, server.privacy.labels)
    drawn[::2] = server.labels[::2]
    return drawn


def labels_of_the_seed(server):
    from securevfl.privacy.mechanisms import randomised_response

    return randomised_response(
        server.labels, server.classes, server.privacy.labels, SeededSource(0)
    )


def labels_of_more(server):
    from securevfl.privacy.mechanisms import randomised_response

    return randomised_response(server.labels, server.classes, server.privacy.labels * 2)


@pytest.mark.parametrize(
    "fault", [labels_exact, labels_half_exact, labels_of_the_seed, labels_of_more]
)
def test_a_fault_of_labels_is_found(fault):
    def plant(made):
        async def setup():
            made[SERVER].labels = fault(made[SERVER])

        made[SERVER].setup = setup

    options = WAIT | {"noise_on": "none", "label_epsilon": 1.5}
    found = verdict(planted("wait_dp", plant), "labels", **options)
    assert found.verdict == "VIOLATED", found.words


def test_labels_that_are_drawn_in_every_round_are_found():
    from securevfl.privacy.mechanisms import randomised_response

    def plant(made):
        server = made[SERVER]
        true, announce = server.labels, server.announce

        def announcing(*given, **more):
            server.labels = randomised_response(true, server.classes, server.privacy.labels)
            announce(*given, **more)

        server.announce = announcing

    cls = planted("wait_dp", plant)
    cls.parties = _unfrozen_labels(cls.parties)
    options = WAIT | {"noise_on": "none", "label_epsilon": 1.5}
    found = verdict(cls, "labels", **options)
    assert found.verdict == "VIOLATED"
    assert "they were drawn again" in found.words


def _unfrozen_labels(parties):
    """Parties whose server keeps its labels as state that changes."""

    def made(self):
        found = parties(self)
        server = found[SERVER]
        cls = type(server)
        changed = {"kept": (*cls.kept, "labels"), "kept_once": ()}
        server.__class__ = type("Server", (cls,), changed)
        return found

    return made


def test_true_labels_behind_the_gradients_deviate_from_the_declaration():
    """Labels that are randomised for show alone: the exact gradient's formula does not hold."""

    def plant(made):
        server = made[SERVER]
        true, train = server.labels.copy(), server.train

        def training(batch, uploads):
            shown, server.labels = server.labels, true
            train(batch, uploads)
            server.labels = shown

        server.train = training

    made = make(
        planted("wait_dp", plant),
        tiny_data().with_parties(2),
        **WAIT | {"noise_on": "none", "label_epsilon": 1.0},
    )
    verifiers = [VERIFIERS.get("declared messages"), Noise()]
    found = judge(differential(made, "labels"), Subject(made), verifiers)
    assert found.verdict == "VIOLATED"


# -- Multi-VFL -----------------------------------------------------------------------------------


def activations(factor=lambda owner, number: 1.0, source=None):
    """Data owners with noise of a factor, or of a source, by label owner and request."""

    def plant(made):
        for party in made.values():
            if not hasattr(party, "copies"):
                continue

            def answer(owner, number, places, party=party):
                rows = party.rows[str(owner)][places]
                exact = party.copies.networks[owner].forward(party.features[rows])
                drawn = None if source is None else gaussian(exact.shape, source(owner, number))
                sent = released(
                    exact,
                    factor(owner, number),
                    drawn,
                    party.privacy.clip,
                    party.privacy.sigma,
                )
                party.send(owner, "embedding", ((owner, places), sent), round=number)

            party.answer = answer

    return plant


@pytest.mark.parametrize(
    "plant",
    [
        activations(lambda owner, number: 0.0),
        activations(lambda owner, number: 0.125),
        activations(lambda owner, number: float(number < 4)),
        activations(lambda owner, number: float(owner != 3)),
        activations(source=seeded),
    ],
)
def test_a_fault_of_activations_is_found(plant):
    found = verdict(planted("multivfl", plant), **OWNERS)
    assert found.verdict == "VIOLATED", found.words


# -- Wrong numbers -------------------------------------------------------------------------------

AGAIN = WAIT | {"batch": 60}  # rows are released more than once
RESPONSE = WAIT | {"noise_on": "none", "label_epsilon": 1.0}


def root_of_delta(monkeypatch):
    own = accountant.noise_multiplier
    monkeypatch.setattr(accountant, "noise_multiplier", lambda eps, delta: own(eps, delta**0.5))


def one_bound_for_a_replaced_row(monkeypatch):
    monkeypatch.setattr(accountant, "sensitivity", lambda bound, relation: bound)


def half_of_what_releases_cost(monkeypatch):
    own = accountant.gaussian_epsilon
    monkeypatch.setattr(accountant, "gaussian_epsilon", lambda *given: 0.7 * own(*given))


def kept_as_with_twice_the_epsilon(monkeypatch):
    def kept(epsilon, classes):
        return 1 / (1 + (classes - 1) * math.exp(-2 * epsilon))

    monkeypatch.setattr(mechanisms, "keep_probability", kept)


def declared_and_added_for_twice_the_epsilon(monkeypatch):
    from securevfl.protocols.wait_dp.protocol import WaitDP

    own = accountant.noise_multiplier
    monkeypatch.setattr(accountant, "noise_multiplier", lambda eps, delta: own(2 * eps, delta))
    declared = WaitDP.embedding_noise.fget
    twice = property(lambda self: replace(declared(self), epsilon=2 * self.config.epsilon))
    monkeypatch.setattr(WaitDP, "embedding_noise", twice)


def less_in_words_than_in_numbers(monkeypatch):
    words = "(0.5, 1e-05) for each release of a row and (9, 1e-05) for all of them"
    monkeypatch.setattr(Guarantee, "__str__", lambda self: words)


@pytest.mark.parametrize(
    ("fault", "asset", "options", "words"),
    [
        (root_of_delta, "features", WAIT, "sigma = 1.263584, and 1.7837365 is"),
        (one_bound_for_a_replaced_row, "features", WAIT, "sigma = 0.89186827, and"),
        (half_of_what_releases_cost, "features", AGAIN, "cost more than the epsilon of all"),
        (kept_as_with_twice_the_epsilon, "labels", RESPONSE, "labels of epsilon = 1: "),
        (
            declared_and_added_for_twice_the_epsilon, "features", WAIT,
            "(epsilon, delta) = (10, 1e-05) is declared, and not claimed",
        ),
        (less_in_words_than_in_numbers, "features", WAIT, "the claim's words say (0.5, 1e-05)"),
    ],
)  # fmt: skip
def test_numbers_of_the_library_are_not_taken_on_trust(monkeypatch, fault, asset, options, words):
    fault(monkeypatch)
    found = verdict(get_protocol("wait_dp"), asset, **options)
    assert found.verdict == "VIOLATED", found.words
    assert words in found.words


def test_a_claim_without_numbers_is_not_endorsed():
    made = make("wait_dp", tiny_data().with_parties(2), **WAIT)
    claim = differential(made, "features")
    by_word = Claim(claim.against, claim.asset, claim.strength, claim.reason)
    found = judge(by_word, Subject(made), [Noise()])
    assert found.verdict == "NOT TESTED"
    assert "the claim has no epsilon and delta" in found.words


# -- Sound noise ---------------------------------------------------------------------------------

SOUND = [
    ("wait_dp", "features", {}),
    ("wait_dp", "features", {"noise_on": "both", "aggregation": "concat"}),
    ("wait_dp", "labels", {"noise_on": "both", "label_epsilon": 1.0}),
    ("wait_dp", "labels", {"noise_on": "gradients", "segments": 2, "batch": 16}),
    ("wait_dp", "labels", {"noise_on": "gradients", "aggregation": "concat"}),
    ("wait_dp", "labels", {"noise_on": "none", "label_epsilon": 3.0}),
    ("wait_dp", "features", {"epsilon": 0.05, "aggregation": "max", "width": 2}),
    ("wait_dp", "features", {"epsilon_budget": 6.0, "batch": 60}),
    ("multivfl", "features", {}),
    ("multivfl", "features", {"epochs": 2, "server_optimizer": "fedadam", "rounds": 2}),
]


@pytest.mark.parametrize(("name", "asset", "options"), SOUND)
def test_sound_noise_is_not_blamed(name, asset, options):
    base = WAIT if name == "wait_dp" else OWNERS
    found = verdict(get_protocol(name), asset, **base | options)
    assert found.verdict == "NO VIOLATION FOUND", found.words
    assert found.failure_probability == pytest.approx(LEVEL)


@pytest.mark.parametrize("name", ["wait_dp", "multivfl"])
def test_seeded_noise_is_claimed_by_nobody(name):
    base = WAIT if name == "wait_dp" else OWNERS
    made = make(name, tiny_data(), **base | {"noise": "seeded"})
    assert not [claim for claim in made.claims if claim.strength == "differential"]


def test_a_method_without_declared_noise_is_not_endorsed():
    made = make("split", tiny_data())
    claim = Claim("server", "features", "differential", "by word alone")
    found = judge(claim, Subject(made), [Noise()])
    assert found.verdict == "NOT TESTED"
    assert "declares no noise" in found.words


def test_what_the_declaration_cannot_compute_is_a_gap():
    class Unknown(get_protocol("wait_dp")):
        """Wait-DP whose formula needs what was never sent."""

        def embedding_at(self, secrets, key):
            raise KeyError("nothing of the kind")

    found = verdict(Unknown, **WAIT)
    assert found.verdict == "NOT TESTED"
    assert "could not be computed" in found.words
