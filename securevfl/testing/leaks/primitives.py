"""Leaks of encrypted methods: primitives of their own, keys used again, formulas that agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field import LagrangeCode
from securevfl.protocols.base.messages import Hypothesis, MessageKey, MessageSpec
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
from securevfl.testing.leaks.planting import begun, messages, planted
from securevfl.testing.runs import Outcome, simulate

ALL_OF_IT = (*SECAGG, ("T clients", "features"), ("T clients", "model"))


# -- secure aggregation ----------------------------------------------------------------------------


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
    """A client draws the same again in a round of every later life, and of every run."""
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


_PRIMITIVE, _LIVES = "a primitive of its own", "secrets of another life or run"
_SETS, _WORD = "two answers to two parties", "hypotheses of its own"


LEAKS = (
    planted("secagg_split", "masks of one byte", _PRIMITIVE,
            "All masks follow from the first byte of a seed, and formulas say so.",
            nothing, SECAGG, _short, __init__=begun("secagg_split", _short_seeds)),
    planted("secagg_split", "constant polynomials", _PRIMITIVE,
            "Each share of a key and a seed is the key and the seed.",
            nothing, ALL_OF_IT, _shares_alike, __init__=begun("secagg_split", _constant_sharing)),
    planted("secagg_split", "secrets of every life", _LIVES,
            "A client has the keys and seeds of a round again in every later life and run.",
            every(_same_in_all_lives), SECAGG, _keys_again),
    planted("secagg_split", "two sets of survivors", _SETS,
            "Half of the clients open a client's seed, the others its key.",
            _two_sets, SECAGG, _both_secrets, {"quorum": 6}, messages=property(_as_told),
            ideal_output=_larger_ideal),
    planted("secagg_split", "hypotheses of its own", _WORD,
            "Keys and seeds are hashes of number and round, and its only hypothesis holds.",
            every(_draws(lambda client, n: _hashed("b", client.index, n))), SECAGG, _seed_of_round,
            hypotheses=_all_is_well),
    planted("he_split", "the same keys in every run", _LIVES,
            "Every run has the same keys, so that who has ever seen them reads all.",
            nothing, HE, _key_of_all, parameters=_one_pair),
    planted("he_split", "the first and fresh zeros", _PRIMITIVE,
            "Sums are one client's embedding and encrypted zeros, and ideal outputs say so.",
            nothing, (*HE, ("key holder", "features")), _single, parameters=_first_only,
            ideal_output=_of_the_first),
)  # fmt: skip
