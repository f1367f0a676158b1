"""One story for all clients of FedVS, at the covert level: the server signs a chained history.

After round t everybody has h_t = H(h_{t-1}, all that was announced of the round, dL/dH), and the
server's signature on it. In the next round each client shows h_t beside its share of the model. A
client uploads only where all sharers show the h that it has, and h stands in the label of its mask.
Before the first gradient h is zeros, for the server could tell that one to one client alone. Who is
shown another h asks for the signature. Two stories under one life and start are two signatures,
which name the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.active.dealing import Form, repetitions
from securevfl.active.dealt import Dealing, chained, compared, no_chain, refuse_lie
from securevfl.active.signing import PROTECTED as SIGNED
from securevfl.active.signing import new_start
from securevfl.active.statements import DIGEST, RUN, Statement, Subject, digest, signed
from securevfl.engine.party import SERVER, Message, kept_as
from securevfl.errors import RunError
from securevfl.protocols.base import proved_shares, signed_uploads
from securevfl.protocols.base.messages import Carries, MessageKey, MessageSpec
from securevfl.protocols.base.received import refusal
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.verified import Element, Secret
from securevfl.verified.batched import encoded_constant
from securevfl.verified.values import Bytes

Story = tuple[Any, ...]  # h, and from round 1 on: round and life, start, signature
DATA = ("train-data", "test-data")
FULLER = (*DATA, "model", "gradient")  # kinds that have more parts at this level
PROTECTED: Mapping[str, str | tuple[str, ...]] = {
    **SIGNED,
    "gradient": ("real", "real", "signature"),
    "model": ("field", "real"),
    **dict.fromkeys(DATA, proved_shares.PROVED),
    **proved_shares.PROTECTED,
    "history": ("public", "real", "real", "signature"),
    "missed": ("public", "real", "real", "signature"),
}
ACTIVE: Mapping[str, str | tuple[str, ...]] = {
    **signed_uploads.PROTECTED,
    "dealt": ("public", "real", "signature"),
    "model": (*proved_shares.PROVED, "real"),
}
LOGGED = 64  # rounds that the server tells again to a client that missed them
SHOWN = 64  # rounds of which a client can show what it showed, if another client doubts it


def keep(party: Any, protected: Mapping[str, Any], active: bool) -> None:
    """Have a party keep its keys of the run and its history in its checkpoints."""
    party.protected = {**protected, **PROTECTED, **(ACTIVE if active else {})}
    names = ("story", "log") if party.index == SERVER else ("story",)
    own = *kept_as("once", "sworn"), *kept_as("frozen", *names, shares=True)
    own += kept_as("passing", "caught") if party.index == SERVER else ()
    party.kept = (*party.kept, *own)  # signed in each run anew: no result of it
    party.sworn, party.story, party.shown = (), (no_chain(party),), {}
    party.dealings, party.roots = (), ()  # of the set-up, while it lasts
    party.dealt = 0, ()  # at the level active: round, and what was dealt of models in it


def share_data(client: Any, part: str, segments: Element) -> None:
    """Share a part of the data, each share with its proof (docs/active.md, L2)."""
    own = _dealing_of(client.public, client.index, f"{part}-data", segments.shape[1:])
    proved_shares.share_with_proof(client, own, segments)


def checked_data(client: Any, part: str, received: Mapping[int, Any]) -> dict[int, Element]:
    """Shares of a part of the data by client, after the proof of each was checked.

    Raises
    ------
    LieFoundError
        Where a client signed shares that are on no one polynomial with those of the others.
    RunError
        Where they are not signed: the dispute of a pair.
    """
    return _checked(client, f"{part}-data", 0, received)


def _checked(client: Any, kind: str, round: int, received: Mapping[int, Any]) -> dict[int, Element]:
    def dealing(n: int, shape: tuple[int, ...]) -> Dealing:
        return _dealing_of(client.public, n, kind, shape, round)

    return proved_shares.check_shared(client, dealing, received, f"fedvs: {kind!r}")


def _dealing_of(
    public: Parameters, dealer: int, kind: str, shape: tuple[int, ...], round: int = 0
) -> Dealing:
    rows, columns = shape  # how many columns the dealer has, its shares alone say
    form = Form(public.code, (rows, columns), repetitions(public.code), kind == "model")
    return Dealing(form, dealer, kind, round)


def sign(server: Any, batch: Batch, attempt: Attempt, gradient: Secret) -> None:
    """Send dL/dH of a round with the server's signature on the history up to that round."""
    h = _after(server, attempt.told(server.round, batch), gradient)
    at = server.round, attempt.life
    signature = server.sign(server.signs.own, _text, h, server.start, *at, server.signs.run)
    server.story = (h, at, server.start, signature)
    signed_gradient = gradient, server.start, signature
    server.log = (*server.log, (server.round, batch, attempt, *signed_gradient))[-LOGGED:]
    server.broadcast("gradient", signed_gradient)


def tell_missed(server: Any, message: Message) -> None:
    """Tell a client what it missed since a round: announcements and gradients in full.

    Hashes would be enough for its history, but not for its model: a client that shares a model
    without a step tells its embedding by the difference.
    """
    rows = [one for one in server.log if type(message.payload) is int and one[0] > message.payload]
    told, *columns = [one[:3] for one in rows], *([one[i] for one in rows] for i in (3, 4, 5))
    server.send(message.sender, "missed", (told, *columns), round=message.round)


async def catch_up(client: Any) -> list[tuple[int, Batch, Attempt, Secret]]:
    """Rounds that the client missed, in order: number, batch, attempt and dL/dH.

    Raises
    ------
    RunError
        As `hear`.
    """
    client.send(SERVER, "lacks", client.story[1][0] if len(client.story) > 1 else 0)
    payload, found = await client.receive("missed", sender=SERVER), []
    lists = payload if isinstance(payload, tuple) and len(payload) == 4 else ((None,), (), (), ())
    if len({len(one) if isinstance(one, list) else -1 for one in lists}) != 1:
        raise refusal("fedvs: 'missed'", SERVER, "one of another form", "rounds with signatures")
    for about, *signed_gradient in zip(*lists, strict=True):
        if not isinstance(about, tuple) or tuple(map(type, about)) != (int, Batch, Attempt):
            raise refusal("fedvs: 'missed'", SERVER, "no round", "a round's announcements")
        round, batch, attempt = about
        gradient = hear(client, round, batch, attempt, tuple(signed_gradient))
        found.append((round, batch, attempt, gradient))
    return found


def hear(client: Any, round: int, batch: Batch, attempt: Attempt, payload: Any) -> Secret:
    """The dL/dH of a round; the client's history is continued with it.

    Raises
    ------
    RunError
        Where the server has not signed the client's own history: one of the two is wrong.
    """
    what, forms = f"fedvs: 'gradient' of round {round}", (Secret, Secret, Bytes)
    if not isinstance(payload, tuple) or tuple(map(type, payload)) != forms:
        raise refusal(what, SERVER, "one without a signature", "dL/dH with a signature")
    gradient: Secret = payload[0]
    start, signature = payload[1:]
    h = _after(client, attempt.told(round, batch), gradient)
    at, signs = (round, attempt.life), client.signs
    who = client.index, signs.run, signs.verifiers[SERVER]
    h.map(_refuse_unsigned, start, signature, *at, *who, shape=(0,))
    client.story = (h, at, start, signature)
    return gradient


def show(client: Any, model: Element) -> None:
    """Share the model, each share with the newest history; zeros where there is none yet.

    At the level active with a proof, too.
    """
    if client.public.active and client.round in client.shown:
        client.start = new_start(client)  # no dealing contradicts another one
    client.shown = {**dict([*client.shown.items()][1 - SHOWN :]), client.round: client.story}
    public, h = client.public, client.story[:1]
    if public.active:
        own = _dealing_of(public, client.index, "model", model.shape, client.round)
        c = proved_shares.share_with_proof(client, own, model, client.start, h)
        client.opened(c, f"c of the model of round {client.round}")  # labels tell H(root, c)
        return
    shares = encoded_constant(client, public.code, model)
    client.share("model", [(shares[j], *h) for j in range(public.code.parties)])


def agreed(client: Any, received: Mapping[int, Any]) -> dict[int, Element] | None:
    """Shares of models by sender; None where one comes with another history than the client has.

    Such a client is asked for the server's signature; `compare` takes what it answers. At the level
    active the proofs are checked, and the client's `label` is the history and a digest of them.

    Raises
    ------
    LieFoundError
        Where a client signed shares that are on no one polynomial with those of the others.
    """
    for n, one in received.items():
        if not isinstance(one, tuple) or (type(one[0]), type(one[-1])) != (Element, Secret):
            raise refusal("fedvs: 'model'", n, "one without a history", "a share with a history")
    h, others = client.story[0], [one[-1] for one in received.values()]
    try:
        h.map(_doubt, tuple(received), *others, shape=(0,))
    except DoubtError as doubt:
        for n in doubt.parties:
            client.send(n, "doubted", None)
        client.record("refused", clients=doubt.parties, why="they were told another history")
        return None
    client.label = (h,)
    if not client.public.active:
        return {n: one[0] for n, one in received.items()}
    client.dealings, client.roots = (), ()
    shares = _checked(client, "model", client.round, {n: x[:-1] for n, x in received.items()})
    dealt = chained(no_chain(client), *(one[1] for one in client.dealings))
    client.label, client.dealt = (dealt, h), (client.round, client.dealings)
    return shares


def tell_dealt(client: Any, message: Message) -> None:
    """Show the others, because the server asks, what this client was dealt of models in a round."""
    round, dealings = client.dealt
    if message.sender == SERVER and message.payload == round:
        who, stories = [one[0].dealer for one in dealings], [one[2] for one in dealings]
        shown, signatures = (list(one) for one in zip(*stories, strict=True))
        others = [n for n in client.peers if n != client.index]
        client.broadcast("dealt", ((round, who), shown, signatures), others)


def compare_dealt(client: Any, message: Message) -> None:
    """Compare what another client was dealt of models in a round with what this one was.

    Raises
    ------
    LieFoundError
        Where a client signed two models.
    RunError
        Where what the other shows is not signed: the dispute of a pair.
    """
    payload, n = message.payload, message.sender
    whole = isinstance(payload, tuple) and len(payload) == 3
    lists: tuple[Any, ...] = payload[1:] if whole else ()
    about: Any = payload[0] if whole else None
    formed = isinstance(about, tuple) and len(about) == 2 and isinstance(about[1], list)
    if not formed or any(not isinstance(x, list) or len(x) != len(about[1]) for x in lists):
        raise refusal("fedvs: 'dealt'", n, "one of another form", "dealings with signatures")
    round, dealings = client.dealt
    own = {one[0].dealer: (one[0], one[2]) for one in dealings} if about[0] == round else {}
    for dealer, *other in zip(about[1], *lists, strict=True):
        if type(dealer) is int and dealer in own:
            dealing, story = own[dealer]
            compared(client, dealing, (client.index, n), client.signs, (story, tuple(other)))


def tell(client: Any, message: Message) -> None:
    """Show who doubts it the history that this client showed in a round, with the signature."""
    _, *signed_story = client.shown.get(message.round, ((),))
    if signed_story:
        h, (at, *rest) = client.shown[message.round][0], signed_story
        client.send(message.sender, "history", (at, h, *rest), round=message.round)


def compare(client: Any, message: Message) -> None:
    """Compare the history that another client showed in a round with the one that this one had.

    Raises
    ------
    LieFoundError
        Where the server signed two stories.
    RunError
        Where the other story is not signed, or is of another start.
    """
    payload, n = message.payload, message.sender
    forms = tuple(map(type, payload)) if isinstance(payload, tuple) else ()
    if forms[1:] != (Secret, Secret, Bytes):
        raise refusal("fedvs: 'history'", n, "one of another form", "a signed history")
    h, *own = client.shown.get(message.round, ((),))
    if own and own[0] == payload[0]:  # else the history of another round
        at, *rest = own
        signs = client.signs
        who = client.index, n, signs.run, signs.verifiers[SERVER]
        h.map(_compare, *rest, *payload[1:], *at, *who, shape=(0,))


def with_history(public: Parameters, messages: tuple[MessageSpec, ...]) -> tuple[MessageSpec, ...]:
    """The messages of a run at the levels covert and active, from those at semi-honest."""
    fuller = (*FULLER, "embedding") if public.active else FULLER

    def once(key: MessageKey) -> int:
        return int(key.round == 0)

    key: Carries = "key"
    made = [
        replace(one, shape=None, dtype="", row_by_row=False) if one.kind in fuller else one
        for one in messages
    ]
    made += [
        MessageSpec(
            "identity", one, "client", key, public=True, count=once, source="docs/active.md"
        )
        for one in ("client", "server")
    ]
    if public.active:
        made += signed_uploads.signed_messages(public.prss)
        made.append(MessageSpec("undealt", "server", "client", "control"))
        made.append(MessageSpec("dealt", "client", "client", key, source="docs/active.md: L2"))
    return (
        *made,
        *proved_shares.echo_messages(),
        MessageSpec("doubted", "client", "client", "control"),
        MessageSpec("history", "client", "client", key, source="docs/active.md: L1"),
        MessageSpec("lacks", "client", "server", "control"),
        MessageSpec("missed", "server", "client", key, source="docs/active.md: L1"),
    )


class DoubtError(RunError):
    """Histories that others showed, and that are not the own one.

    Attributes
    ----------
    parties : list of int
    """

    def __init__(self, parties: list[int]) -> None:
        super().__init__(f"parties {parties} show another history")
        self.parties = parties


def _doubt(h: np.ndarray, parties: tuple[int, ...], *others: np.ndarray) -> np.ndarray:
    """Nothing, or the error of histories that are not the own one."""
    found = [n for n, one in zip(parties, others, strict=True) if not np.array_equal(h, one)]
    if found:
        raise DoubtError(found)
    return np.empty(0)


def _after(party: Any, told: bytes, gradient: Secret) -> Secret:
    """The history after a round; (32,) uint8."""
    found: Secret = party.story[0].map(_hash, gradient, told, shape=(DIGEST,), dtype=np.uint8)
    return found


def _hash(before: np.ndarray, gradient: np.ndarray, told: bytes) -> np.ndarray:
    """H(h_{t-1}, all that was announced, dL/dH)."""
    own = before.tobytes(), told, np.ascontiguousarray(gradient).tobytes()
    return np.frombuffer(digest("history", *own), np.uint8)


def _subject(start: np.ndarray, round: int, life: int, run: bytes) -> Subject:
    return Subject(run, life, start.tobytes(), SERVER, "history", round)


def _text(h: np.ndarray, start: np.ndarray, round: int, life: int, run: bytes) -> bytes:
    """Bytes that the server signs."""
    return signed(_subject(start, round, life, run), h.tobytes())


def _refuse_unsigned(
    h: np.ndarray,
    start: np.ndarray,
    signature: bytes,
    round: int,
    life: int,
    client: int,
    run: bytes,
    verifier: bytes,
) -> np.ndarray:
    """Nothing, or the error of a history that the server has not signed."""
    statement = Statement(_subject(start, round, life, run), h.tobytes(), signature)
    if not statement.is_valid({SERVER: verifier}):
        raise RunError(
            f"fedvs: round {round}: the server has not signed what party {client} was told up to "
            f"this round. It went back to an older state, or told others something else. Dispute "
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
    life: int,
    place: int,
    sender: int,
    run: bytes,
    verifier: bytes,
) -> np.ndarray:
    """Nothing, or the error of two stories, or of a story that nobody signed."""
    one = Statement(_subject(start, round, life, run), h.tobytes(), signature)
    two = Statement(_subject(other_start, round, life, run), other.tobytes(), other_signature)
    if np.array_equal(h, other):  # as of a client that a crash took back, and that caught up
        return np.empty(0)
    if not two.is_valid({SERVER: verifier}):
        raise RunError(
            f"fedvs: what party {sender} shows of round {round} lacks the server's signature. "
            f"Dispute of {place} and {sender}: one of both errs"
            + ", or the server gave them two keys"
            * (run == RUN)
        )
    refuse_lie(verifier, one, two)
    raise RunError(
        f"fedvs: the server told parties {place} and {sender} two stories of round {round}, in "
        "two starts: it was put back to an older state, or it lies. Start the run again"
    )
