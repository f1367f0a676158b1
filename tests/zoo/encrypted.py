"""Leaks of secagg_split and he_split."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.secagg_split.algorithm import Pairing, pair_masks
from securevfl.testing.runs import Outcome
from tests.zoo.planting import (
    Leak,
    Plant,
    changed,
    clients,
    messages,
)

SECAGG = tuple(
    (who, about) for who in ("server", "server + T clients") for about in ("features", "model")
)
HE = (("server", "features"), ("server", "model"))


def every(plant: Callable[[Any], None]) -> Plant:
    """Plant one fault in every client."""

    def planting(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            plant(one)

    return planting


# -- secure aggregation --------------------------------------------------------------------------


def _no_self_mask(client: Any) -> None:
    client.masked = _without_own(client)


def _no_pair_masks(client: Any) -> None:
    client.masked = _without_pairs(client, lambda round: True)


def _without_own(client: Any) -> Any:
    hide = client.masked

    def masked(x: np.ndarray, pairing: Any, seed: bytes, deals: Any) -> np.ndarray:
        whole, public = hide(x, pairing, seed, deals), client.public
        left: np.ndarray = public.field.subtract(whole, public.stream(seed, x.shape))
        return left

    return masked


def _without_pairs(client: Any, where: Callable[[int], bool]) -> Any:
    hide = client.masked

    def masked(x: np.ndarray, pairing: Any, seed: bytes, deals: Any) -> np.ndarray:
        if not where(client.round):
            whole: np.ndarray = hide(x, pairing, seed, deals)
            return whole
        own: np.ndarray = client.public.field.add(x, client.public.stream(seed, x.shape))
        return own

    return masked


def _draws(new: Callable[[Any, int], bytes]) -> Callable[[Any], None]:
    """Plant that replaces what a client draws: (client, number of the draw in the run)."""

    def plant(client: Any) -> None:
        count = [0]

        def drawing() -> bytes:
            count[0] += 1
            return new(client, count[0])

        client.random_bytes = drawing

    return plant


def _hashed(*words: Any) -> bytes:
    return hashlib.sha256(repr(words).encode()).digest()


def _same_two_rounds(client: Any) -> None:
    draw, kept = client.random_bytes, {}  # type: ignore[var-annotated]
    count = [0]

    def drawing() -> bytes:
        place = count[0] % 4
        count[0] += 1
        kept[place % 2] = draw() if place < 2 else kept[place % 2]
        found: bytes = kept[place % 2]
        return found

    client.random_bytes = drawing


def _both_opened(client: Any) -> None:
    opened = client.open

    def opening(deals: Any, survivors: Any) -> Any:
        return replace(
            opened(deals, survivors),
            seeds={v: deal.seed for v, deal in deals.items()},
            secrets={v: deal.secret for v, deal in deals.items()},
        )

    client.open = opening


def _seed_told(client: Any) -> None:
    send = client.send

    def sending(to: int, kind: str, payload: Any, **more: Any) -> None:
        send(to, kind, payload, **more)
        if kind == "secret":
            send(SERVER, "shared", payload[0] + payload[1], round=client.round + 1000)

    client.send = sending


def _secagg_secrets(outcome: Outcome) -> list[tuple[int, int, bytes, bytes]]:
    """(client, round, key, seed) from the shares that each dealt."""
    public = outcome.protocol.public  # type: ignore[attr-defined]
    found = []
    dealt: dict[tuple[int, int], dict[int, Any]] = {}
    for one in messages(outcome, "deal"):
        at = dealt.setdefault((int(one["sender"]), int(one["round"])), {})
        at[int(one["receiver"])] = one["payload"]
    for (client, round), deals in dealt.items():
        few = dict(list(deals.items())[: public.threshold])
        parts = [{n: getattr(d, name) for n, d in few.items()} for name in ("secret", "seed")]
        found.append((client, round, public.rebuild(parts[0]), public.rebuild(parts[1])))
    return found


def _seeds_repeat(outcome: Outcome) -> bool:
    seeds = [seed for *_, seed in _secagg_secrets(outcome)]
    return len(set(seeds)) < len(seeds)


def _seed_of_round(outcome: Outcome) -> bool:
    return all(seed == _hashed("b", n, 2 * r) for n, r, _, seed in _secagg_secrets(outcome))


def _both(outcome: Outcome) -> bool:
    payloads = [one["payload"] for one in messages(outcome, "opening")]
    return any(set(one.seeds) & set(one.secrets) for one in payloads)


def _upload_left(*, own: bool, pairs: bool, round: int) -> Callable[[Outcome], bool]:
    """Test whether uploads of a round are small once some of the masks are taken off."""

    def shows(outcome: Outcome) -> bool:
        public = outcome.protocol.public  # type: ignore[attr-defined]
        known = {n: (key, seed) for n, r, key, seed in _secagg_secrets(outcome) if r == round}
        keys = {n: Pairing(n, round, key).public for n, (key, _) in known.items()}
        for one in messages(outcome, "embedding", round):
            n, left = int(one["sender"]), one["payload"]
            if own:
                left = public.field.subtract(left, public.stream(known[n][1], left.shape))
            if pairs:
                mine = Pairing(n, round, known[n][0])
                left = public.field.subtract(left, pair_masks(public, mine, keys, left.shape))
            if np.abs(public.field.signed(left)).max() > 2**40:
                return False
        return True

    return shows


def _beyond(kind: str) -> Callable[[Outcome], bool]:
    return lambda outcome: any(one["round"] > 1000 for one in messages(outcome, kind))


# -- homomorphic encryption ----------------------------------------------------------------------


def _plaintext_beside(client: Any) -> None:
    quantised = client.quantised

    def telling(own: np.ndarray) -> np.ndarray:
        x: np.ndarray = quantised(own)
        client.send(SERVER, "plain", x)
        return x

    client.quantised = telling


def _secret_key_told(client: Any) -> None:
    setup = client.setup

    async def more() -> None:
        await setup()
        if client.secret_key:
            client.send(SERVER, "key", client.secret_key, round=1000)

    client.setup = more


def _sums_of_one(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The server asks the key holder for single embeddings, once more in each round."""
    server = parties[SERVER]
    holder = server.public.holder
    train = parties[holder].train
    party = parties[holder]

    async def training(batch: np.ndarray) -> None:
        x = party.quantised(party.rows_of(batch))
        party.send(SERVER, "opened", x, round=party.round + 1000)
        await train(batch)

    party.train = training


def _with_plain(self: Any) -> tuple[MessageSpec, ...]:
    base: Any = get_protocol("he_split")
    found: tuple[MessageSpec, ...] = base.messages.fget(self)
    return (*found, MessageSpec("plain", "client", "server", "control", public=True))


def _secret_in_key(outcome: Outcome) -> bool:
    holder: Any = outcome.parties[0]
    return any(holder.secret_key in (one["payload"], bytes(one["payload"]))
               for one in messages(outcome, "key"))  # fmt: skip


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed(protocol, plant, **attributes)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, options or {},
                shows=shows)  # fmt: skip


_MASKS, _DRAWN, _OPENED = "masks left out", "keys and seeds reused or known", "shares opened"
_PLAIN, _KEY, _CIPHER = "plaintext beside what hides it", "the secret key sent", "ciphertexts"

LEAKS = (
    _leak(
        "secagg_split",
        "no self mask",
        _MASKS,
        "Uploads lack PRG(b_u).",
        every(_no_self_mask),
        SECAGG[2:],
        _upload_left(own=False, pairs=True, round=1),
    ),
    _leak(
        "secagg_split",
        "no pairwise masks",
        _MASKS,
        "Uploads have no mask but PRG(b_u), which is opened.",
        every(_no_pair_masks),
        SECAGG,
        _upload_left(own=True, pairs=False, round=1),
    ),
    _leak(
        "secagg_split",
        "seeds for two rounds",
        _DRAWN,
        "Keys and seeds are drawn for two rounds.",
        every(_same_two_rounds),
        SECAGG,
        _seeds_repeat,
    ),
    _leak(
        "secagg_split",
        "seed of the round",
        _DRAWN,
        "Keys and seeds are hashes of the client's number and the round.",
        every(_draws(lambda client, n: _hashed("b", client.index, n))),
        SECAGG,
        _seed_of_round,
    ),
    _leak(
        "secagg_split",
        "both shares opened",
        _OPENED,
        "Clients open shares of the seed and of the key of everybody.",
        every(_both_opened),
        SECAGG,
        _both,
    ),
    _leak(
        "secagg_split",
        "key and seed told",
        _PLAIN,
        "A message `shared` of a later round has key and seed.",
        every(_seed_told),
        SECAGG,
        _beyond("shared"),
    ),
    _leak(
        "he_split",
        "plaintext beside the ciphertext",
        _PLAIN,
        "A new kind, declared as public control, has the embedding.",
        every(_plaintext_beside),
        HE,
        lambda outcome: any(messages(outcome, "plain")),
        messages=property(_with_plain),
    ),
    _leak(
        "he_split",
        "secret key told",
        _KEY,
        "The key holder sends the server its secret key.",
        every(_secret_key_told),
        HE,
        _secret_in_key,
    ),
    _leak(
        "he_split",
        "a sum of one",
        _CIPHER,
        "The key holder gives the server its own embedding in the place of a sum.",
        _sums_of_one,
        HE,
        _beyond("opened"),
    ),
)
