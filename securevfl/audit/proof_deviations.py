"""Differences between a recorded run with coded shares and the run that the proof assumes.

The proof is that of docs/masking.md.

The formulas are the proof's own, written apart from those that the protocol declares: each payload
that carries a secret is computed anew from the secrets and tapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from securevfl.audit import views
from securevfl.audit.proof import coupling
from securevfl.audit.recorded_runs import CodedRun
from securevfl.engine import wire

_ROUTES = {
    **dict.fromkeys(("round", "attempt", "gradient"), ("server", "client")),
    **dict.fromkeys(("train-data", "model", "key"), ("client", "client")),
    **dict.fromkeys(("shared", "embedding"), ("client", "server")),
}


def deviations(recorded: CodedRun) -> Iterator[str]:
    """Differences between a run and the one that the proof is about, message by message.

    Every payload that carries a secret is computed anew from the secrets and tapes; every draw must
    be one that the proof counts as fresh and uniform; S must be large enough.
    """
    yield from _draws(recorded)
    yield from _keys(recorded)
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


def _draws(recorded: CodedRun) -> Iterator[str]:
    """Each client draws data masks Z once, and in each round model masks V."""
    T, h = recorded.code.privacy, recorded.protocol.config.width
    for n, tape in recorded.tapes.items():
        rows, columns = recorded.data[n].shape[1:]
        wanted = [(0, (T, rows, columns))]
        wanted += [(round, (T, columns, h)) for round in recorded.attempts]
        drawn = [(r, d.shape) for r, d in zip(tape.rounds, tape.draws, strict=True)]
        if drawn != wanted:
            yield f"client {n} draws {drawn}, and the proof needs {wanted}"
        seen = [d.tobytes() for d in tape.draws]
        if len(set(seen)) < len(seen):
            yield f"client {n} draws the same mask twice"


def _keys(recorded: CodedRun) -> Iterator[str]:
    """One key for each block A of clients, of 32 bytes, drawn once and sent outside A alone."""
    everybody, prss = set(recorded.data), recorded.protocol.prss
    sets = [] if prss is None else [set(A) for A in prss.blocks]
    drawn = [key for n in recorded.data for key in recorded.keys[n]]
    if len(drawn) != len(sets) or {len(key) for key in drawn} > {32}:
        yield f"{len(drawn)} keys are drawn, and the proof needs {len(sets)} of 32 bytes"
    if len(set(drawn)) < len(drawn):
        yield "a key is drawn twice"
    for (_, sender, receiver), sent in recorded.whole.payloads("key").items():
        dealt = [A for A in sets if min(everybody - A) == sender]
        wanted = [
            key for A, key in zip(dealt, recorded.keys[sender], strict=False) if receiver not in A
        ]
        if sent.tobytes() != b"".join(wanted):
            yield f"client {sender} sends client {receiver} keys that are not the proof's"


def _attempts(recorded: CodedRun) -> Iterator[str]:
    """One batch B and one set of sharers S in each round, large enough, and a label of its own."""
    T = recorded.code.privacy
    for kind in ("round", "attempt"):
        named: dict[int, Any] = {}
        for (round, _, receiver), payload in recorded.whole.payloads(kind).items():
            if not views.same(named.setdefault(round, payload), payload):
                yield f"round {round}: client {receiver} is told another {kind} than others"
    labels = set()
    for round, announced in recorded.announced.items():
        if not recorded.protocol.masked:
            continue
        sharers = announced[1].sharers
        if len(set(sharers)) < T + 2:
            yield f"round {round}: {len(sharers)} sharers"
        label = recorded.protocol.told(round, *announced)
        if label in labels or not all(wire.encode(one) in label for one in announced):
            yield f"round {round}: the label of the masks is not all that was announced"
        labels.add(label)


def _shares(recorded: CodedRun) -> Iterator[str]:
    code = recorded.code
    for n in recorded.data:
        own = recorded.secrets(n)
        wanted = {("train-data", 0): code.encode(own.data, masks=own.data_masks)}
        for round, model in own.models.items():
            encoded = code.encode_constant(model, masks=own.model_masks[round])
            wanted["model", round] = encoded
        for message in recorded.whole.messages:
            if message.sender != n or message.kind not in ("train-data", "model"):
                continue
            shares, receiver = wanted.get((message.kind, message.round)), message.receiver
            known = receiver in recorded.data  # never the index -1
            share = shares[receiver] if shares is not None and known else None
            if share is None or not views.same(message.payload, share):
                name = f"the {message.kind} from {n} to {receiver}"
                yield f"round {message.round}: {name} is not the proof's"


def _uploads(recorded: CodedRun) -> Iterator[str]:
    """Y = psi + P rho at the sender's point; one upload a round."""
    code, field = recorded.code, recorded.code.field
    for round, (batch, attempt) in recorded.attempts.items():
        stand = {n: recorded.secrets(n) for n in attempt.sharers}
        wanted = coupling.psi(code, stand, round, batch)
        if recorded.protocol.masked:
            rho = recorded.mask_values(round)
            wanted = field.add(wanted, field.multiply(code.vanishing[:, None, None], rho))
        sent = [m for m in recorded.whole.messages if m.kind == "embedding" and m.round == round]
        if len({m.sender for m in sent}) < len(sent):
            yield f"round {round}: a client uploads twice"
        for message in sent:
            sender = message.sender
            if sender not in recorded.data or not views.same(message.payload, wanted[sender]):
                yield f"round {round}: the upload of client {message.sender} is not the proof's"
