"""Leaks of the other methods: their own primitives, noise that cancels, labels that travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.field import LagrangeCode
from securevfl.models.split import Batches
from securevfl.privacy.mechanisms import clip_rows, gaussian, keep_probability, release_rows
from securevfl.protocols.base.messages import GaussianNoise, Hypothesis, MessageKey, MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.encrypted import (
    HE,
    SECAGG,
    _draws,
    _hashed,
    _secagg_secrets,
    _seed_of_round,
    every,
)
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.labels import CLIENT, GUEST, HOST
from securevfl.testing.leaks.noise import LABELS, OWNERS, ROWS, SECURE, _first, _released
from securevfl.testing.leaks.planting import ACCUSED, WITHHELD, Leak, changed, messages
from securevfl.testing.runs import Outcome, simulate

ALL_OF_IT = (*SECAGG, ("T clients", "features"), ("T clients", "model"))


def begun(base: str, after: Callable[[Any], None]) -> Any:
    """`__init__` that goes on with `after`."""
    cls: Any = get_protocol(base)

    def init(self: Any, config: Any, data: Any, *, seed: int) -> None:
        cls.__init__(self, config, data, seed=seed)
        after(self)

    return init


# -- secure aggregation: its primitives ------------------------------------------------------------


def _short_seeds(protocol: Any) -> None:
    """Masks follow from the first byte of a seed."""
    kind = type(protocol.public)

    def stream(self: Any, seed: bytes, shape: tuple[int, ...]) -> np.ndarray:
        masks: np.ndarray = kind.stream(self, seed[:1] * len(seed), shape)
        return masks

    short = type(f"Short{kind.__name__}", (kind,), {"stream": stream, "__module__": __name__})
    fields = {name: getattr(protocol.public, name) for name in kind.__dataclass_fields__}
    protocol.public = short(**fields)


class _Constant(LagrangeCode):
    """A sharing whose polynomials are constant: masks that are not given are drawn and dropped."""

    def encode(self, segments: Any, out: Any = None, source: Any = None, masks: Any = None,
               threads: int = 1) -> np.ndarray:  # fmt: skip
        if masks is None:
            self.field.random((self.privacy, *np.shape(segments)[1:]))
            masks = np.repeat(np.asarray(segments), self.privacy, axis=0)
        return super().encode(segments, out, source, masks, threads)


def _constant_sharing(protocol: Any) -> None:
    old = protocol.public.shamir
    shamir = _Constant(old.field, parties=old.parties, segments=1, privacy=old.privacy, degree=1)
    protocol.public = replace(protocol.public, shamir=shamir)


_KEPT: dict[tuple[int, int, int], bytes] = {}


def _same_in_all_lives(client: Any) -> None:
    """What a client draws in a round it has again in every later life, and in every run."""
    draw, places = client.random_bytes, {}  # type: ignore[var-annotated]

    def drawing() -> bytes:
        place = places.get(client.round, 0)
        places[client.round] = place + 1
        return _KEPT.setdefault((client.index, client.round, place), draw())

    client.random_bytes = drawing


def _two_sets(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Three survivors are told that the last one dropped, the others that it survived."""
    server = parties[SERVER]
    broadcast, collect, unmask = server.broadcast, server.collect, server.unmask

    def telling(kind: str, payload: Any, to: Any = None) -> None:
        if kind != "survivors":
            broadcast(kind, payload, to)
            return
        broadcast(kind, payload[:-1], payload[:3])
        broadcast(kind, payload, payload[3:])

    async def collecting(kind: str, **more: Any) -> Any:
        if kind == "opening":
            more["count"] = len(more["senders"])
        return await collect(kind, **more)

    def unmasking(keys: Any, uploads: Any, openings: Any) -> np.ndarray:
        whole = {n: one for n, one in openings.items() if set(uploads) <= set(one.seeds)}
        total: np.ndarray = unmask(keys, uploads, whole)
        return total

    server.broadcast, server.collect, server.unmask = telling, collecting, unmasking


def _as_told(self: Any) -> tuple[MessageSpec, ...]:
    """Declaration in which survivors are as told, and gradients of the larger set."""
    base: Any = get_protocol("secagg_split")
    found = {one.kind: one for one in base.messages.fget(self)}
    sound: Any = found["gradient"].recompute

    def told(secrets: Any, key: MessageKey) -> Any:
        return secrets.sent("survivors", key.round)[SERVER, key.receiver]

    def of_the_larger(secrets: Any, key: MessageKey) -> Any:
        sets = {n: one for (_, n), one in secrets.sent("survivors", key.round).items()}
        return sound(secrets, key._replace(receiver=max(sets, key=lambda n: len(sets[n]))))

    found["survivors"] = replace(found["survivors"], recompute=told)
    found["gradient"] = replace(found["gradient"], recompute=of_the_larger)
    return tuple(found.values())


class _Larger:
    """The secrets of a run, in which all were told the larger set of survivors."""

    def __init__(self, secrets: Any) -> None:
        self._secrets = secrets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._secrets, name)

    def sent(self, kind: str, round: int) -> Any:
        found = self._secrets.sent(kind, round)
        if kind != "survivors" or not found:
            return found
        return dict.fromkeys(found, max(found.values(), key=len))


def _larger_ideal(self: Any, secrets: Any, key: MessageKey) -> Any:
    base: Any = get_protocol("secagg_split")
    return base.ideal_output(self, _Larger(secrets), key)


def _all_is_well(self: Any, secrets: Any) -> tuple[Hypothesis, ...]:
    return (Hypothesis("all keys and seeds are different and fresh", True),)


# -- homomorphic encryption: its key and its sums ------------------------------------------------


_PAIR: list[tuple[bytes, bytes]] = []


def _one_pair(self: Any) -> Any:
    """Parameters whose scheme makes the same keys in every run."""
    base: Any = get_protocol("he_split")
    made = base.parameters(self)
    generate = made.scheme.generate

    def pair() -> tuple[bytes, bytes]:
        if not _PAIR:
            _PAIR.append(generate())
        return _PAIR[0]

    made.scheme.generate = pair
    return made


def _first_only(self: Any) -> Any:
    """Parameters whose scheme adds fresh zeros to the first ciphertext, and nothing else."""
    base: Any = get_protocol("he_split")
    made = base.parameters(self)
    add, encrypt = made.scheme.add, made.scheme.encrypt
    size = self.layout.coded * self.layout.segments * self.config.width

    def adding(key: bytes, ciphertexts: Any) -> Any:
        zeros = [encrypt(key, np.zeros(size, np.int64)) for _ in ciphertexts[1:]]
        return add(key, [ciphertexts[0], *zeros])

    made.scheme.add = adding
    return made


def _of_the_first(self: Any, secrets: Any, key: MessageKey) -> Any:
    if key.kind not in ("sum", "opened"):
        return None
    summed = sorted(n for _, n in secrets.sent("gradient", key.round))
    return self.upload(secrets, summed[0], key.round)


# -- noise that has its size and hides less --------------------------------------------------------


def _in_pairs(client: Any, rows: np.ndarray) -> np.ndarray:
    noise = gaussian(rows.shape)
    noise[1::2] = -noise[: 2 * (len(rows) // 2) : 2]
    noisy: np.ndarray = clip_rows(rows, client.privacy.clip) + client.privacy.sigma * noise
    return noisy


def _below_the_grid(client: Any, rows: np.ndarray) -> np.ndarray:
    privacy = client.privacy
    words = release_rows(rows, bound=privacy.clip, sigma=privacy.sigma).view(np.int32)
    told: np.ndarray = ((words & ~1) | (rows > np.median(rows))).astype(np.int32).view(np.float32)
    return told


def _opposite(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Client 2 has the noise of client 1 with the other sign, whichever of them draws first."""
    kept: dict[int, np.ndarray] = {}

    def plant(client: Any) -> None:
        def release(rows: np.ndarray) -> np.ndarray:
            found = kept.pop(client.round, None)
            noise = gaussian(rows.shape) if found is None else -found
            if found is None:
                kept[client.round] = noise
            noisy = clip_rows(rows, client.privacy.clip) + client.privacy.sigma * noise
            released: np.ndarray = noisy.astype(np.float32)
            return released

        client.release = release

    plant(parties[1])
    plant(parties[2])


def _less_noise(protocol: Protocol, parties: dict[int, Any]) -> None:
    for n in protocol.peers():
        party = parties[n]
        party.privacy = replace(party.privacy, epsilon=8 * party.privacy.epsilon)


def _larger_epsilon(self: Any) -> GaussianNoise:
    base: Any = get_protocol("wait_dp")
    found: GaussianNoise = base.embedding_noise.fget(self)
    return replace(found, epsilon=8 * found.epsilon)


def _first_batch_again(protocol: Any) -> None:
    first = protocol.layout.draw(1)
    protocol.layout.draw = lambda round: first.copy()


def _no_limit(protocol: Protocol, parties: dict[int, Any]) -> None:
    for party in parties.values():
        party.limit = 10**6


def _one_sided(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Labels change as often as they should, but never those of the first class."""
    server = parties[SERVER]

    async def setup() -> None:
        truth, rng = server.labels, server.stream("flips")
        stay = keep_probability(server.privacy.labels, server.classes)
        others = truth != 0
        flips = others & (rng.random(len(truth)) < (1 - stay) / max(others.mean(), 1e-9))
        server.labels = np.where(flips, (truth + 1) % server.classes, truth).astype(truth.dtype)

    server.setup = setup


def _sums_to_zero(client: Any) -> None:
    """multivfl: over the rows of a request the noise sums to zero."""

    def release(A: np.ndarray, noise: Any, owner: int, number: int) -> np.ndarray:
        drawn = gaussian(A.shape)
        drawn = (drawn - drawn.mean(axis=0)) * (len(A) / (len(A) - 1)) ** 0.5
        noisy: np.ndarray = (clip_rows(A, noise.clip) + noise.sigma * drawn).astype(np.float32)
        return noisy

    client.release = release


# -- labels ----------------------------------------------------------------------------------------


def _labels_in_columns(protocol: Any) -> None:
    """A column of each guest's aligned rows is the label."""
    labels = np.asarray(protocol.data.train_labels, np.float32)
    held = []
    for own in protocol.features:
        copy = own.copy()
        copy[: len(labels), -1] = labels / max(float(labels.max()), 1.0)
        held.append(copy)
    protocol.features = held


def _end_after_training(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The owner tells the end when its own training is over, which stops early by its labels."""
    owner = parties[SERVER]
    conclude, train = owner.conclude, owner.train
    asked: list[Any] = []

    async def training() -> None:
        await train()
        for to in asked:
            conclude(to)

    owner.conclude = lambda to=None: asked.append(to)
    owner.train = training


def _waits(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Before each request the server waits as long as a label says."""
    server = parties[SERVER]
    ask = server.ask

    async def asking() -> None:
        await server.sleep(100.0 * float(server.labels[len(server.received)]))
        await ask()

    server.ask = asking


class _ByLabel:
    """A generator whose permutations sort by label."""

    def __init__(self, labels: np.ndarray) -> None:
        self._labels = labels

    def permutation(self, length: int) -> np.ndarray:
        """Order of the labels."""
        return np.argsort(self._labels[:length], kind="stable")


def _sorted_guests(protocol: Protocol, parties: dict[int, Any]) -> None:
    stream: Any = _ByLabel(protocol.data.train_labels)
    for n in protocol.peers():
        guest = parties[n]
        batches = guest.batches
        guest.batches = Batches(batches.rows, 1, batches.coded, lambda *names: stream)


# -- seeing them ---------------------------------------------------------------------------------


def _short(outcome: Outcome) -> bool:
    public = outcome.protocol.public  # type: ignore[attr-defined]
    seeds = [seed for *_, seed in _secagg_secrets(outcome)]
    return all(
        np.array_equal(public.stream(one, (8,)), public.stream(one[:1] + bytes(31), (8,)))
        for one in seeds
    )


def _shares_alike(outcome: Outcome) -> bool:
    sent = [one["payload"] for one in messages(outcome, "deal", 1) if one["sender"] == 1]
    return all(np.array_equal(one.seed, sent[0].seed) for one in sent)


def _keys_again(outcome: Outcome) -> bool:
    again = simulate(type(outcome.protocol), payloads=True)
    return {one[2] for one in _secagg_secrets(outcome)} == {
        one[2] for one in _secagg_secrets(again)
    }


def _both_secrets(outcome: Outcome) -> bool:
    """Whether t clients opened a client's seed, and t its key."""
    public, last = outcome.protocol.public, outcome.protocol.peers()[-1]  # type: ignore[attr-defined]
    opened = [one["payload"] for one in messages(outcome, "opening", 1)]
    counts = [sum(last in part for part in parts)
              for parts in ([o.seeds for o in opened], [o.secrets for o in opened])]  # fmt: skip
    return min(counts) >= int(public.threshold)


def _key_of_all(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    holder: Any = outcome.parties[0]
    return bool(made.parameters().scheme.generate()[1] == holder.secret_key)


def _single(outcome: Outcome) -> bool:
    """Whether what was opened in round 1 is one client's embedding."""
    made: Any = outcome.protocol
    opened = next(messages(outcome, "opened", 1))["payload"]
    for n in made.peers():
        party: Any = outcome.parties[n]
        rows = party.rows_of(party.batches.draw(1))
        if np.array_equal(opened, made.public.point.round(made.client_network(n).forward(rows))):
            return True
    return False


def _pairs_exact(outcome: Outcome) -> bool:
    sent, exact, sigma = _first(outcome)
    left = sent - exact
    return float(np.abs(left[0] + left[1]).max()) < sigma / 1000


def _sum_exact(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    sent = {int(one["sender"]): one["payload"] for one in messages(outcome, "embedding", 1)}
    left: Any = 0
    for n in (1, 2):
        party: Any = outcome.parties[n]
        rows = made.client_network(n).forward(party.rows_of(party.batches.draw(1)))
        left = left + sent[n] - clip_rows(rows, party.privacy.clip)
    return float(np.abs(left).max()) < float(made.privacy.sigma) / 1000


def _low_bits(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    party: Any = outcome.parties[1]
    sent, _, _ = _first(outcome)
    rows = made.client_network(1).forward(party.rows_of(party.batches.draw(1)))
    return np.array_equal(sent.view(np.int32) & 1, (rows > np.median(rows)).astype(np.int32))


def _below_the_claim(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    sent, exact, _ = _first(outcome)
    return float((sent - exact).std()) < float(made.privacy.sigma) / 2


def _same_rows(outcome: Outcome) -> bool:
    asked = [one["payload"] for one in messages(outcome, ANNOUNCE)
             if isinstance(one["payload"], np.ndarray)]  # fmt: skip
    return len(asked) > 1 and all(np.array_equal(one, asked[0]) for one in asked)


def _first_class_stays(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    server: Any = outcome.parties[SERVER]
    truth = made.data.train_labels
    return bool((server.labels[truth == 0] == 0).all() and (server.labels != truth).any())


def _mean_exact(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    one = next(m for m in messages(outcome, "embedding", 1) if m["sender"] == 1)
    (owner, places), sent = one["payload"]
    party: Any = outcome.parties[1]
    rows = party.features[party.rows[str(owner)][places]]
    exact = clip_rows(made.data_owner(1).copies.networks[owner].forward(rows), party.privacy.clip)
    return float(np.abs((sent - exact).mean(axis=0)).max()) < float(party.privacy.sigma) / 1000


def _labels_held(outcome: Outcome) -> bool:
    labels = np.asarray(outcome.protocol.data.train_labels)
    guest: Any = outcome.parties[1]
    own = guest.features[: len(labels), -1] * labels.max()
    return np.array_equal(np.rint(own).astype(labels.dtype), labels)


def _end_is_late(outcome: Outcome) -> bool:
    owner: Any = outcome.parties[SERVER]
    arrived = [int(one["arrived"]) for one in messages(outcome, ANNOUNCE) if one["receiver"] == 0]
    last = max(event.time for event in outcome.events if event.name == "round")
    return owner.steps > 1 and max(arrived) >= last


def _waits_tell(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    asked = [one for one in messages(outcome, ANNOUNCE) if one["receiver"] == 0]
    arrived = sorted(int(one["arrived"]) for one in asked if isinstance(one["payload"], np.ndarray))
    gaps = np.diff(arrived) / 1e11
    found: bool = np.array_equal(np.rint(gaps), server.labels[1 : len(arrived)])
    return found


def _order_held(outcome: Outcome) -> bool:
    guest: Any = outcome.parties[1]
    labels = outcome.protocol.data.train_labels
    order = guest.batches.samples(np.arange(guest.batches.length))
    return bool((np.diff(labels[order[order >= 0]]) >= 0).all())


_PRIMITIVE, _LIVES = "a primitive of its own", "secrets of another life or run"
_SETS, _WORD = "two answers to two parties", "hypotheses of its own"
_CANCELS, _BITS = "noise that cancels", "low bits of noise"
_DECLARED, _AGAIN = "more epsilon than is claimed", "rows that are released too often"
_SIDED, _GIVEN = "labels that change on one side", "labels that a party is given"
_TIMES = "labels in times"


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, expected: Any = WITHHELD, **attributes: Any) -> Leak:  # fmt: skip
    made = changed(protocol, plant, **attributes)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, options or {},
                expected, shows)  # fmt: skip


def _noise(protocol: str, name: str, cause: str, says: str, plant: Any, shows: Any,
           breaks: Any = ROWS, options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    return _leak(protocol, name, cause, says, plant, breaks, shows, options or SECURE, ACCUSED,
                 **attributes)  # fmt: skip


LEAKS = (
    _leak("secagg_split", "masks of one byte", _PRIMITIVE,
          "All masks follow from the first byte of a seed, and formulas say so.",
          nothing, SECAGG, _short, __init__=begun("secagg_split", _short_seeds)),
    _leak("secagg_split", "constant polynomials", _PRIMITIVE,
          "Each share of a key and a seed is the key and the seed.",
          nothing, ALL_OF_IT, _shares_alike, __init__=begun("secagg_split", _constant_sharing)),
    _leak("secagg_split", "secrets of every life", _LIVES,
          "A client has the keys and seeds of a round again in every later life and run.",
          every(_same_in_all_lives), SECAGG, _keys_again),
    _leak("secagg_split", "two sets of survivors", _SETS,
          "Half of the clients open a client's seed, the others its key.",
          _two_sets, SECAGG, _both_secrets, {"quorum": 6}, messages=property(_as_told),
          ideal_output=_larger_ideal),
    _leak("secagg_split", "hypotheses of its own", _WORD,
          "Keys and seeds are hashes of number and round, and its only hypothesis holds.",
          every(_draws(lambda client, n: _hashed("b", client.index, n))), SECAGG, _seed_of_round,
          hypotheses=_all_is_well),
    _leak("he_split", "the same keys in every run", _LIVES,
          "Every run has the same keys, so that who has ever seen them reads all.",
          nothing, HE, _key_of_all, parameters=_one_pair),
    _leak("he_split", "the first and fresh zeros", _PRIMITIVE,
          "Sums are one client's embedding and encrypted zeros, and ideal outputs say so.",
          nothing, (*HE, ("key holder", "features")), _single, parameters=_first_only,
          ideal_output=_of_the_first),
    _noise("wait_dp", "noise in pairs of rows", _CANCELS,
           "Two rows have the same noise with other signs, so that their sum is exact.",
           _released(_in_pairs), _pairs_exact),
    _noise("wait_dp", "noise in pairs of clients", _CANCELS,
           "Clients 1 and 2 have the same noise with other signs.", _opposite, _sum_exact),
    _noise("wait_dp", "bits below the grid", _BITS,
           "The lowest bit of each value tells whether the exact one is above the median.",
           _released(_below_the_grid), _low_bits),
    _noise("wait_dp", "a larger epsilon in the declaration", _DECLARED,
           "The noise is of eight times the claimed epsilon, and its declaration says so.",
           _less_noise, _below_the_claim, embedding_noise=property(_larger_epsilon)),
    _noise("wait_dp", "the first batch in every round", _AGAIN,
           "All rounds release the same rows, more often than epsilon was counted for.",
           _no_limit, _same_rows, __init__=begun("wait_dp", _first_batch_again)),
    _noise("wait_dp", "labels of the first class stay", _SIDED,
           "As many labels change as should, but none of the first class.",
           _one_sided, _first_class_stays, LABELS,
           {**SECURE, "noise_on": "none", "label_epsilon": 1.0}),
    _noise("multivfl", "noise that sums to zero", _CANCELS,
           "Over the rows of a request the noise sums to zero.", every(_sums_to_zero),
           _mean_exact, OWNERS),
    _leak("dvfl", "labels in the guests' columns", _GIVEN,
          "A column of each guest is the label.", nothing, (GUEST, HOST), _labels_held,
          None, ACCUSED, __init__=begun("dvfl", _labels_in_columns)),
    _leak("dvfl", "the end after an early stop", _TIMES,
          "The end is told after the owner's training, whose length depends on labels.",
          _end_after_training, (GUEST, HOST), _end_is_late,
          {"stop_after": 1, "rounds": 12, "lr": 0.3}, ACCUSED),
    _leak("fedonce", "waits as long as labels say", _TIMES,
          "Before each request the server waits as long as a label says.", _waits, CLIENT,
          _waits_tell, None, ACCUSED),
    _leak("fedonce", "own rows in the order of labels", _GIVEN,
          "Guests are made with batches that are sorted by label.", _sorted_guests, CLIENT,
          _order_held, None, ACCUSED),
)  # fmt: skip
