"""Signed history of rounds, for the security level "covert": all clients are told the same.

After round t all clients have the hash h_t = H(h_{t-1}, all announcements of the round, dL/dH),
signed by the server; dL/dH is the gradient of the loss by the summed embeddings. In the next round
each client sends h_t beside each share, and continues only if all clients show the same h. Before
the first gradient h is zeros. A client that sees another h asks for its signature: two histories
signed for one round, incarnation and start convict the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.active.dealt import refuse_lie
from securevfl.active.signing import PROTECTED as SIGNED
from securevfl.active.statements import (
    DIGEST,
    RUN,
    ApartError,
    Statement,
    Subject,
    digest,
    refuse_apart,
    signed,
)
from securevfl.errors import ProtocolError, RunError
from securevfl.verified import Secret
from securevfl.verified.trace import SERVER
from securevfl.verified.values import Bytes

PROTECTED: Mapping[str, str | tuple[str, ...]] = {
    **SIGNED,
    "gradient": ("real", "real", "signature"),
    "history": ("public", "real", "real", "signature"),
    "missed": ("public", "real", "real", "signature"),
}
LOGGED = 64  # rounds that the server tells again to a client that missed them
SHOWN = 64  # rounds of which a client can show what it showed, if another client doubts it


@dataclass(frozen=True)
class Telling:
    """Form in which the server of a method announces a round: attribute `telling` of its parties.

    Attributes
    ----------
    method : str
        Name of the method, for errors.
    forms : tuple of type
        Types of the announced values.
    told : callable
        Function that encodes the round and all announced values to bytes.
    life : callable
        Function that returns the server's incarnation number from the announced values.
    """

    method: str
    forms: tuple[type, ...]
    told: Callable[..., bytes]
    life: Callable[..., int]


def sign(server: Any, *announced: Any, gradient: Secret) -> None:
    """Send dL/dH of a round with the server's signature on the history up to that round."""
    telling: Telling = server.telling
    h = _after(server, telling.told(server.round, *announced), gradient)
    at = server.round, telling.life(*announced)
    signature = server.sign(server.signs.own, _text, h, server.start, *at, server.signs.run)
    server.story = (h, at, server.start, signature)
    signed_gradient = gradient, server.start, signature
    server.log = (*server.log, ((server.round, *announced), *signed_gradient))[-LOGGED:]
    server.broadcast("gradient", signed_gradient)


def tell_missed(server: Any, message: Any) -> None:
    """Answer a client's `message` with all announcements and gradients after the round in it.

    Hashes would suffice for its history, but not for its model: the share of a model that lacks a
    step would reveal an embedding by the difference.
    """
    since = message.payload
    rows = [one for one in server.log if type(since) is int and one[0][0] > since]
    columns = tuple([one[i] for one in rows] for i in range(4))
    server.send(message.sender, "missed", columns, round=message.round)


def may_lack(client: Any) -> bool:
    """Whether a round before the current one never reached the client, which may lack its step."""
    found: bool = client.round > client.round_before + 1
    return found


async def catch_up(client: Any) -> list[tuple[Any, ...]]:
    """Rounds that the client missed, in order: number, announced values and dL/dH.

    A round that the client received already is refused: repeating it with another sum would change
    the client's model. Rounds from the current one on are left out.

    Raises
    ------
    ProtocolError
        If the answer is malformed, or its rounds do not ascend from the client's last one.
    RunError
        If the server's signature of a dL/dH is not on this client's own history.
    """
    last = client.story[1][0] if len(client.story) > 1 else 0
    client.send(SERVER, "lacks", last)
    payload, found = await client.receive("missed", sender=SERVER), []
    lists = payload if isinstance(payload, tuple) and len(payload) == 4 else ((None,), (), (), ())
    if len({len(one) if isinstance(one, list) else -1 for one in lists}) != 1:
        raise _no_form(client, "missed", SERVER, "rounds with signatures")
    for about, *signed_gradient in zip(*lists, strict=True):
        forms = int, *client.telling.forms
        if not isinstance(about, tuple) or tuple(map(type, about)) != forms:
            raise _no_form(client, "missed", SERVER, "a round's announcements")
        if about[0] >= client.round:
            break
        if about[0] <= last:
            raise _no_form(client, "missed", SERVER, "rounds in their order")
        last = about[0]
        found.append((*about, hear(client, *about, payload=tuple(signed_gradient))))
    return found


NOTHING = 0, 0, b""  # `attempted` of a client: round, the one that it was in before, its sum


def come_back(client: Any) -> None:
    """Prepare a restarted client for repeating rounds.

    If it repeats the round of the newest announced sum, it accepts only this sum (`told_of_sum`).
    If it goes back further, its models are computed again, so this sum is forgotten.
    """
    client.round_before = client.round
    if client.round < client.attempted[1]:
        client.attempted = NOTHING


def told_of_sum(client: Any, round: int, told: bytes) -> None:
    """Raise RunError if a round's sum is not over the clients announced for it before.

    This also holds after a crash. Else the server could make one client step by a sum that only it
    received. `told` encodes the announced values without the server's incarnation: a restarted
    server repeats a sum over the same clients.
    """
    newest, _, before = client.attempted
    if round == newest and told != before:
        raise RunError(
            f"{client.telling.method}: the server says of round {round} another sum than it told "
            f"party {client.index} in it. Dispute of {SERVER} and {client.index}: one of both errs"
        )


def note_sum(client: Any, told: bytes) -> None:
    """Store the announced values of the client's round (`told`); the caller writes them ahead.

    Raises
    ------
    RunError
        If another sum was announced for this round before.
    """
    told_of_sum(client, client.round, told)
    client.attempted = client.round, client.round_before, told


def hear(client: Any, round: int, *announced: Any, payload: Any) -> Secret:
    """The dL/dH of a round from the server's signed `payload`; it extends the client's history.

    Raises
    ------
    RunError
        If the server's signature is not on the client's own history: one of the two is wrong.
    """
    forms = Secret, Secret, Bytes
    if not isinstance(payload, tuple) or tuple(map(type, payload)) != forms:
        raise _no_form(client, "gradient", SERVER, "dL/dH with a signature")
    gradient: Secret = payload[0]
    start, signature = payload[1:]
    h = _after(client, client.telling.told(round, *announced), gradient)
    at, signs = (round, client.telling.life(*announced)), client.signs
    who = client.telling.method, client.index, signs.run, signs.verifiers[SERVER]
    h.map(_refuse_unsigned, start, signature, *at, *who, shape=(0,))
    client.story = (h, at, start, signature)
    return gradient


def shown(client: Any) -> tuple[Secret]:
    """(Newest history hash,), to send beside a share; stored with its signature for `tell`."""
    client.shown = {**dict([*client.shown.items()][1 - SHOWN :]), client.round: client.story}
    return (client.story[0],)


def doubts(client: Any, others: Mapping[int, Secret]) -> bool:
    """Whether any history hash of other clients differs from this client's own.

    The client asks such clients for the server's signature, and passes the answer to `compare`.
    """
    try:
        client.story[0].map(refuse_apart, tuple(others), *others.values(), shape=(0,))
    except ApartError as doubt:
        for n in doubt.parties:
            client.send(n, "doubted", None)
        client.record("refused", clients=doubt.parties, why="they were told another history")
        return True
    return False


def tell(client: Any, message: Any) -> None:
    """Answer a client that doubts a round's history with the signed history."""
    _, *signed_story = client.shown.get(message.round, ((),))
    if signed_story:
        h, (at, *rest) = client.shown[message.round][0], signed_story
        client.send(message.sender, "history", (at, h, *rest), round=message.round)


def compare(client: Any, message: Any) -> None:
    """Compare another client's signed history of a round, in `message`, with this client's.

    Raises
    ------
    LieFoundError
        If the server signed two contradicting histories.
    RunError
        If the other history is not signed, or belongs to another start.
    """
    payload, n = message.payload, message.sender
    forms = tuple(map(type, payload)) if isinstance(payload, tuple) else ()
    if forms != (tuple, Secret, Secret, Bytes) or tuple(map(type, payload[0])) != (int, int):
        raise _no_form(client, "history", n, "a signed history")
    h, *own = client.shown.get(message.round, ((),))
    if own and own[0][0] == payload[0][0]:  # else the history of another round
        at, *rest = own
        signs = client.signs
        who = client.telling.method, client.index, n, signs.run, signs.verifiers[SERVER]
        lives = at[1], payload[0][1]
        h.map(_compare, *rest, *payload[1:], at[0], lives, *who, shape=(0,))


def _no_form(client: Any, kind: str, sender: int, wanted: str) -> ProtocolError:
    """Error for a malformed message of a kind and sender; `wanted` is the form it must have."""
    return ProtocolError(
        f"{client.telling.method}: {kind!r} of party {sender} is of another form, and must be "
        f"{wanted}. It departs from the protocol, or has other options: give all the same ones"
    )


def _after(party: Any, told: bytes, gradient: Secret) -> Secret:
    """Hash of the history after a round, (32,) uint8; `told`: the announced values, encoded."""
    found: Secret = party.story[0].map(_hash, gradient, told, shape=(DIGEST,), dtype=np.uint8)
    return found


def _hash(before: np.ndarray, gradient: np.ndarray, told: bytes) -> np.ndarray:
    """Hash H(h_{t-1}, announced values, dL/dH) of the history after round t."""
    own = before.tobytes(), told, np.ascontiguousarray(gradient).tobytes()
    return np.frombuffer(digest("history", *own), np.uint8)


def _subject(start: np.ndarray, round: int, life: int, run: bytes) -> Subject:
    return Subject(run, life, start.tobytes(), SERVER, "history", round)


def _text(h: np.ndarray, start: np.ndarray, round: int, life: int, run: bytes) -> bytes:
    """Bytes that the server signs: history hash h, in its start, round, life and run."""
    return signed(_subject(start, round, life, run), h.tobytes())


def _refuse_unsigned(
    h: np.ndarray,
    start: np.ndarray,
    signature: bytes,
    round: int,
    life: int,
    method: str,
    client: int,
    run: bytes,
    verifier: bytes,
) -> np.ndarray:
    """Empty array, for `Secret.map`; RunError if the server has not signed the history."""
    statement = Statement(_subject(start, round, life, run), h.tobytes(), signature)
    if not statement.is_valid({SERVER: verifier}):
        raise RunError(
            f"{method}: round {round}: the server has not signed what party {client} was told up "
            "to this round. It went back to an older state, or told others something else. Dispute "
            f"of {SERVER} and {client}: one of both errs"
        )
    return np.empty(0)


def _compare(
    h: np.ndarray,
    start: np.ndarray,
    signature: bytes,
    other: np.ndarray,
    other_start: np.ndarray,
    other_signature: bytes,
    round: int,
    lives: tuple[int, int],
    method: str,
    place: int,
    sender: int,
    run: bytes,
    verifier: bytes,
) -> np.ndarray:
    """Empty array, for `Secret.map`; LieFoundError for two stories, RunError for a dispute."""
    if np.array_equal(h, other):  # as of a client that a crash took back, and that caught up
        return np.empty(0)
    if lives[0] != lives[1] and not np.array_equal(start, other_start):
        return np.empty(0)  # a round was made again, and one of both is of the life before
    one, two = (
        Statement(_subject(begun, round, life, run), said.tobytes(), name)
        for begun, life, said, name in zip(
            (start, other_start), lives, (h, other), (signature, other_signature), strict=True
        )
    )
    if not two.is_valid({SERVER: verifier}):
        raise RunError(
            f"{method}: what party {sender} shows of round {round} lacks the server's signature. "
            f"Dispute of {place} and {sender}: one of both errs"
            + ", or the server gave them two keys"
            * (run == RUN)
        )
    refuse_lie(verifier, one, two)
    raise RunError(
        f"{method}: the server told parties {place} and {sender} two stories of round {round}, in "
        "two starts: it was put back to an older state, or it lies. Start the run again"
    )
