"""How a recorded run of a protocol with coded shares differs from the run that the proof assumes.

The proof is that of docs/masking.md.

The formulas are the proof's own, written apart from those that the protocol declares: each payload
that carries a secret is computed anew from the secrets and tapes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from securevfl.audit import views
from securevfl.audit.proof import coupling
from securevfl.audit.recorded_runs import CodedRun

_ROUTES = {
    **dict.fromkeys(("round", "attempt", "gradient"), ("server", "client")),
    **dict.fromkeys(("train-data", "model", "mask"), ("client", "client")),
    **dict.fromkeys(("shared", "embedding"), ("client", "server")),
}


def deviations(recorded: CodedRun) -> Iterator[str]:
    """Where a run departs from what the proof is about, message by message.

    Every payload that carries a secret is computed anew from the secrets and tapes; every draw must
    be one that the proof counts as fresh and uniform; S and D must be large enough.
    """
    yield from _draws(recorded)
    yield from _attempts(recorded)
    yield from _shares(recorded)
    yield from _uploads(recorded)
    yield from _others(recorded)


def _others(recorded: CodedRun) -> Iterator[str]:
    """Messages that are unknown, sent twice, or between the wrong parties."""
    clients, seen = set(recorded.data), set()
    for message in recorded.whole.messages:
        head = (message.kind, message.round, message.sender, message.receiver)
        if message.kind not in _ROUTES:
            yield f"a {message.kind!r} from {message.sender} to {message.receiver} is unknown"
            continue
        ends = ("client" if n in clients else "server" for n in head[2:])
        if tuple(ends) != _ROUTES[message.kind]:
            yield f"round {message.round}: a {message.kind!r} from {head[2]} to {head[3]}"
        if head in seen:
            name = f"the {message.kind} from {head[2]} to {head[3]}"
            yield f"round {message.round}: {name} is sent twice"
        seen.add(head)
        if message.kind == "shared" and message.payload is not None:
            yield f"client {message.sender} tells the server more than that it shared"


def _coefficient_count(recorded: CodedRun) -> int:
    return recorded.code.segments + 2 * recorded.code.privacy - 1


def _dealers(recorded: CodedRun, round: int) -> tuple[int, ...]:
    return recorded.protocol.dealers(round)


def _draws(recorded: CodedRun) -> Iterator[str]:
    """Each client draws data masks Z once; in each round model masks V and, as a dealer, rho."""
    T, h = recorded.code.privacy, recorded.protocol.config.width
    for n, tape in recorded.tapes.items():
        rows, columns = recorded.data[n].shape[1:]
        wanted = [(0, (T, rows, columns))]
        for round, (batch, _) in recorded.attempts.items():
            wanted.append((round, (T, columns, h)))
            if n in _dealers(recorded, round):
                wanted.append((round, (_coefficient_count(recorded), len(batch), h)))
        drawn = [(r, d.shape) for r, d in zip(tape.rounds, tape.draws, strict=True)]
        if drawn != wanted:
            yield f"client {n} draws {drawn}, and the proof needs {wanted}"
        seen = [d.tobytes() for d in tape.draws]
        if len(set(seen)) < len(seen):
            yield f"client {n} draws the same mask twice"


def _attempts(recorded: CodedRun) -> Iterator[str]:
    """One batch B, one set of sharers S and one of dealers D in each round, both large enough."""
    T = recorded.code.privacy
    for kind in ("round", "attempt"):
        named: dict[int, Any] = {}
        for (round, _, receiver), payload in recorded.whole.payloads(kind).items():
            if not views.same(named.setdefault(round, payload), payload):
                yield f"round {round}: client {receiver} is told another {kind} than others"
    for round, (_, attempt) in recorded.attempts.items():
        if not recorded.protocol.masked:
            continue
        dealers = set(attempt.dealers) & set(_dealers(recorded, round))
        if len(dealers) <= T or len(set(attempt.sharers)) < T + 2:
            yield f"round {round}: {len(dealers)} dealers and {len(attempt.sharers)} sharers"


def _shares(recorded: CodedRun) -> Iterator[str]:
    code, field = recorded.code, recorded.code.field
    powers = _powers(recorded)
    for n in recorded.data:
        own = recorded.secrets(n)
        wanted = {("train-data", 0): code.encode(own.data, masks=own.data_masks)}
        for round, model in own.models.items():
            encoded = code.encode_constant(model, masks=own.model_masks[round])
            wanted["model", round] = encoded
            if n in _dealers(recorded, round):
                rho = recorded.tapes[n].at(round)[1]
                wanted["mask", round] = field.matmul(powers, rho.reshape(len(rho), -1)).reshape(
                    -1, *rho.shape[1:]
                )
        for message in recorded.whole.messages:
            if message.sender != n or message.kind not in ("train-data", "model", "mask"):
                continue
            shares, receiver = wanted.get((message.kind, message.round)), message.receiver
            known = receiver in recorded.data  # never the index -1
            share = shares[receiver] if shares is not None and known else None
            if share is None or not views.same(message.payload, share):
                name = f"the {message.kind} from {n} to {receiver}"
                yield f"round {message.round}: {name} is not the proof's"


def _powers(recorded: CodedRun) -> np.ndarray:
    """alpha^i for the coefficients that the proof needs."""
    field = recorded.code.field
    alphas = field.elements(list(recorded.code.alphas))
    return field.power(alphas[:, None], np.arange(_coefficient_count(recorded)))


def _uploads(recorded: CodedRun) -> Iterator[str]:
    """Y = psi + P sum rho at the sender's point; one upload a round."""
    code, field = recorded.code, recorded.code.field
    for round, (batch, attempt) in recorded.attempts.items():
        stand = {n: recorded.secrets(n) for n in attempt.sharers}
        wanted = coupling.psi(code, stand, round, batch)
        if recorded.protocol.masked:
            rhos = [recorded.tapes[j].at(round)[1] for j in attempt.dealers]
            total = functools.reduce(field.add, rhos)
            values = field.matmul(_powers(recorded), total.reshape(len(total), -1))
            hidden = field.multiply(code.vanishing[:, None], values)
            wanted = field.add(wanted, hidden.reshape(wanted.shape))
        sent = [m for m in recorded.whole.messages if m.kind == "embedding" and m.round == round]
        if len({m.sender for m in sent}) < len(sent):
            yield f"round {round}: a client uploads twice"
        for message in sent:
            sender = message.sender
            if sender not in recorded.data or not views.same(message.payload, wanted[sender]):
                yield f"round {round}: the upload of client {message.sender} is not the proof's"
