"""Levels covert and active of FedVS: what clients send beside shares of models and data.

Each client sends with its model share the history hash h of everything that the server announced
(`active.history`). A client uploads only if all sharers show the h that it has, and h is part of
its mask's label. Shares of data come with proofs; at level active those of models, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from securevfl.active.dealing import Form, repetitions
from securevfl.active.dealt import Dealing, chained, compared, no_chain
from securevfl.active.history import NOTHING, Telling, doubts, shown
from securevfl.active.history import PROTECTED as HISTORY
from securevfl.active.signing import new_start
from securevfl.engine.party import SERVER, Message, kept_as
from securevfl.protocols.base.levels import proved_shares, signed_uploads
from securevfl.protocols.base.messages import MessageSpec, with_history
from securevfl.protocols.base.received import refusal
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.verified import Element, Secret
from securevfl.verified.batched import encoded_constant

DATA = ("train-data", "test-data")
FULLER = (*DATA, "model", "gradient")  # kinds that have more parts at this level
PROTECTED: Mapping[str, str | tuple[str, ...]] = {
    **HISTORY,
    "model": ("field", "real"),
    **dict.fromkeys(DATA, proved_shares.PROVED),
    **proved_shares.PROTECTED,
}
ACTIVE: Mapping[str, str | tuple[str, ...]] = {
    **signed_uploads.PROTECTED,
    "dealt": ("public", "real", "signature"),
    "model": (*proved_shares.PROVED, "real"),
}


def told(round: int, batch: Batch, attempt: Attempt) -> bytes:
    """Bytes of everything announced in a round."""
    return attempt.told(round, batch)


def life(batch: Batch, attempt: Attempt) -> int:
    """Incarnation number of the server in an announcement."""
    return attempt.life


TELLING = Telling("fedvs", (Batch, Attempt), told, life)


def keep(party: Any, protected: Mapping[str, Any], active: bool) -> None:
    """Adapt a party to levels covert and active: protected kinds, and state for checkpoints."""
    party.protected = {**protected, **PROTECTED, **(ACTIVE if active else {})}
    names = ("story", "log") if party.index == SERVER else ("story",)
    own = *kept_as("once", "sworn"), *kept_as("frozen", *names, shares=True)
    own += (
        kept_as("passing", "caught")
        if party.index == SERVER
        else kept_as("passing", "attempted", ahead=True)
    )
    party.kept = (*party.kept, *own)  # signed in each run anew: no result of it
    party.sworn, party.story, party.shown = (), (no_chain(party),), {}
    party.telling, party.attempted, party.round_before = TELLING, NOTHING, 0
    party.dealings, party.roots = (), ()  # of the set-up, while it lasts
    party.dealt = 0, ()  # at the level active: round, and what was dealt of models in it


def share_data(client: Any, part: str, segments: Element) -> None:
    """Share a part of the data, each share with its proof (docs/active.md, L2)."""
    own = _dealing_of(client.public, client.index, f"{part}-data", segments.shape[1:])
    proved_shares.share_with_proof(client, own, segments)


def checked_data(client: Any, part: str, received: Mapping[int, Any]) -> dict[int, Element]:
    """Shares of a part of the data by client, after a check of each proof.

    Raises
    ------
    LieFoundError
        If a client signed shares that do not lie on one polynomial with the others'.
    RunError
        If they are not signed: a dispute of two parties.
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


def show(client: Any, model: Element) -> None:
    """Send the model's shares to all clients, each with the history hash h, at first zeros.

    At level active each share has a proof, too.
    """
    if client.public.active and client.round in client.shown:
        client.start = new_start(client)  # no dealing contradicts another one
    public, h = client.public, shown(client)
    if public.active:
        own = _dealing_of(public, client.index, "model", model.shape, client.round)
        c = proved_shares.share_with_proof(client, own, model, client.start, h)
        client.opened(c, f"c of the model of round {client.round}")  # labels tell H(root, c)
        return
    shares = encoded_constant(client, public.code, model)
    client.share("model", [(shares[j], *h) for j in range(public.code.parties)])


def agreed(client: Any, received: Mapping[int, Any]) -> dict[int, Element] | None:
    """Shares of models by sender; None if a sender's history differs from this client's.

    The client asks such a sender for the server's signature, and `compare` checks the answer. At
    level active the proofs are checked, and the client's `label` contains the history and a digest
    of the proofs. LieFoundError if a client signed shares that do not lie on one polynomial with
    the others'.
    """
    for n, one in received.items():
        if not isinstance(one, tuple) or (type(one[0]), type(one[-1])) != (Element, Secret):
            raise refusal("fedvs: 'model'", n, "one without a history", "a share with a history")
    if doubts(client, {n: one[-1] for n, one in received.items()}):
        return None
    h = client.story[0]
    client.label = (h,)
    if not client.public.active:
        return {n: one[0] for n, one in received.items()}
    client.dealings, client.roots = (), ()
    shares = _checked(client, "model", client.round, {n: x[:-1] for n, x in received.items()})
    dealt = chained(no_chain(client), *(one[1] for one in client.dealings))
    client.label, client.dealt = (dealt, h), (client.round, client.dealings)
    return shares


def tell_dealt(client: Any, message: Message) -> None:
    """Send others this client's statements on a round's model dealings, if the server asks."""
    round, dealings = client.dealt
    if message.sender == SERVER and message.payload == round:
        who, stories = [one[0].dealer for one in dealings], [one[2] for one in dealings]
        shown, signatures = (list(one) for one in zip(*stories, strict=True))
        others = [n for n in client.peers if n != client.index]
        client.broadcast("dealt", ((round, who), shown, signatures), others)


def compare_dealt(client: Any, message: Message) -> None:
    """Compare another client's statements in `message`, on a round's model dealings, with own ones.

    Raises
    ------
    LieFoundError
        If a client signed two models.
    RunError
        If the other client's statement is not signed: a dispute of two parties.
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
            compared(dealing, (client.index, n), client.signs, (story, tuple(other)))


def messages(public: Parameters, every: tuple[MessageSpec, ...]) -> tuple[MessageSpec, ...]:
    """Message declarations for levels covert and active, from those for semi-honest."""
    fuller = (*FULLER, "embedding") if public.active else FULLER
    own: tuple[MessageSpec, ...] = ()
    if public.active:
        own = (
            *signed_uploads.signed_messages(public.prss),
            MessageSpec("undealt", "server", "client", "control"),
            MessageSpec("dealt", "client", "client", "key", source="docs/active.md: L2"),
        )
    return (*with_history(every, *fuller), *proved_shares.echo_messages(), *own)
