"""The handshake and the chains: who can agree on keys, and what keys that leak open."""

import copy

import pytest

from securevfl.engine.carriers import handshake as module
from securevfl.engine.carriers.datagrams import ACK, DATA, encode_hello, open_sealed, read_head
from securevfl.engine.carriers.handshake import Answer, Chain, Credentials, Handshake
from securevfl.errors import SealError, WireError
from tests.engine.carriers.world import World, credentials_of, identity, manifest_of


def pair(context=(b"", b""), kem=(True, True), monkeypatch=None):
    """Both sides of a handshake, which have heard each other's offers."""
    who = {n: identity() for n in (-1, 0)}
    manifest, made = manifest_of(who), {}
    for at, (n, peer) in enumerate([(-1, 0), (0, -1)]):
        base = credentials_of(who[n], manifest)
        credentials = base._replace(context=base.context + context[at])
        if not kem[at]:
            monkeypatch.setattr(module, "_new_mlkem", lambda: None)
        made[n] = Handshake(credentials, n, peer, 3, 0)
        monkeypatch and monkeypatch.undo()
    return made


def hear(made):
    for n, one in made.items():
        other = made[-1 - n]
        one.check(other.offer)
        one.hear(other.offer)


def ciphers(chains, number=0):
    data = b"text", b"head"
    return [chain.cipher(number).encrypt(bytes(12), *data) for chain in chains]


@pytest.mark.parametrize("kem", [(True, True), (True, False), (False, True), (False, False)])
def test_both_ends_have_the_same_four_keys(kem, monkeypatch):
    made = pair(kem=kem, monkeypatch=monkeypatch)
    hear(made)
    one, two = made[-1].agree(made[0].answer), made[0].agree(made[-1].answer)
    sent, sent_acks, received, received_acks = ciphers(one)
    assert ciphers(two) == [received, received_acks, sent, sent_acks]
    assert len({sent, sent_acks, received, received_acks}) == 4
    assert [bool(one.answer.ciphertext) for one in made.values()] == [all(kem)] * 2


def test_both_secrets_are_in_the_keys():
    """Who lacks the X25519 secrets, or those of ML-KEM, derives other keys."""
    made = pair()
    hear(made)
    right = ciphers(made[0].agree(made[-1].answer))
    stranger = pair()
    hear(stranger)
    for name in ("_secret", "_shared", "_decapsulation"):
        twin = copy.copy(made[0])
        setattr(twin, name, getattr(stranger[0], name))
        assert ciphers(twin.agree(made[-1].answer)) != right


def test_who_differs_in_the_context_does_not_agree():
    """Such as in the lives of all parties."""
    made = pair(context=(b"era 1", b"era 2"))
    with pytest.raises(SealError, match="not signed"):
        made[0].check(made[-1].offer)


def test_changed_offers_and_answers_are_refused():
    made = pair()
    hear(made)
    offer, answer = made[-1].offer, made[-1].answer
    for changed in (
        offer._replace(epoch=4), offer._replace(attempt=1), offer._replace(public=bytes(32)),
        offer._replace(encapsulation=b""), offer._replace(signature=b""), made[0].offer,
    ):  # fmt: skip
        with pytest.raises(SealError, match="not signed"):
            made[0].check(changed)
    for changed in (
        answer._replace(ciphertext=b""), answer._replace(signature=bytes(64)),
        answer._replace(ciphertext=made[0].answer.ciphertext), made[0].answer,
    ):  # fmt: skip
        if changed.heard == answer.heard:
            with pytest.raises(SealError, match="not signed"):
                made[0].agree(changed)
        else:
            assert made[0].agree(changed) is None
    assert made[0].agree(Answer()) is None


def test_keys_that_are_none_are_refused():
    """A key of small order, or of another length, that its owner has signed."""
    who = {n: identity() for n in (-1, 0)}
    manifest = manifest_of(who)
    for changes, error in (({"public": bytes(32)}, True), ({"encapsulation": b"x"}, False)):
        one = Handshake(credentials_of(who[0], manifest), 0, -1, 0, 0)
        liar = Handshake(credentials_of(who[-1], manifest), -1, 0, 0, 0)
        offer = liar.offer._replace(**changes)
        liar.offer = offer._replace(signature=who[-1].sign(liar._stated(-1, 0, offer)))
        liar.__dict__.pop("_own_hash", None)
        one.check(liar.offer)
        if not error:
            with pytest.raises(SealError, match="a key that is none"):
                one.hear(liar.offer)
            continue
        one.hear(liar.offer)
        liar.hear(one.offer)
        with pytest.raises(SealError, match="a key that is none"):
            one.agree(liar.answer)


def test_an_old_offer_whose_secrets_leaked_impersonates_nobody():
    """A thief has all that party 0 had in memory before its restart, and the relay; not its key.

    It shows the old offer to party -1, which was restarted and has forgotten all. The same thief
    was taken for party 0 where each introduction was signed alone.
    """
    world = World()
    stolen = copy.copy(world.sessions[0]._links[-1].handshake)
    stolen._credentials = Credentials(stolen._credentials.context, identity().sign, lambda *_: True)
    world.meet()
    world.start(0, 1)
    server = world.start(-1, 1)
    world.stopped.add(0)
    server.take(encode_hello(0, -1, stolen.offer, Answer()), world.now)
    theirs = server._links[0].handshake
    assert theirs.theirs == stolen.offer  # it was signed, once
    stolen.hear(theirs.offer)
    before = server.rejected
    server.take(encode_hello(0, -1, stolen.offer, stolen.answer), world.now)
    assert server.rejected == before + 1
    assert server._links[0].chains is None
    world.for_seconds(10)
    assert server.present == frozenset()
    world.stopped.discard(0)
    world.meet()
    assert world.met[-1] == [(0, 0), (0, 1)]


def openable(recorded, sessions):
    """Recorded datagrams that all keys in memory open, with all that follows from these."""
    opened = 0
    for data in recorded:
        head = read_head(data)
        chains = sessions[head.receiver]._links[head.sender].chains
        if head.type not in (DATA, ACK) or chains is None:
            continue
        chain = copy.deepcopy(chains.received_acks if head.type == ACK else chains.received)
        try:
            open_sealed(chain.cipher(head.number), head, data)
        except (SealError, WireError):
            continue
        opened += head.type == DATA
    return opened


def test_of_recorded_datagrams_later_keys_open_only_those_of_their_moment():
    world = World()
    recorded = []
    bring = world.bring
    world.bring = lambda receiver, data: (recorded.append(data), bring(receiver, data))
    world.meet()
    for n in range(150):
        world.sessions[-1].send(0, b"share %d" % n)
        world.sessions[0].send(-1, b"sum %d" % n)
        world.run(lambda: all(one.idle for one in world.sessions.values()))
    sealed = sum(read_head(data).type == DATA for data in recorded)
    assert sealed >= 300
    assert openable(recorded, world.sessions) == 0
    world.sessions[-1].send(0, b"under way")
    world.flush()
    assert openable(recorded, world.sessions) == 1
    for session in world.sessions.values():
        for link in session._links.values():
            assert link.handshake._secret is None


def test_a_chain_forgets_what_it_used_and_jumps_no_further_than_a_bound():
    chain, twin = Chain(bytes(32)), Chain(bytes(32))
    for number in (0, 3, 1):
        sealed = twin.cipher(number).encrypt(bytes(12), b"x", None)
        assert chain.cipher(number).decrypt(bytes(12), sealed, None) == b"x"
        chain.used(number, 0)
        with pytest.raises(WireError, match="no key"):
            chain.cipher(number)
    assert len(chain._kept) == 1
    chain.used(4, 5)
    assert not chain._kept
    with pytest.raises(WireError, match="no key"):
        chain.cipher(1 << 40)
    acks = Chain(bytes(32), 8)
    acks.used(200, 200)
    acks.cipher(201)
    acks.used(300, 300)
    with pytest.raises(WireError, match="no key"):
        acks.cipher(255)


def test_a_forged_number_moves_no_chain():
    world = World()
    world.meet()
    chains = world.sessions[0]._links[-1].chains
    before = [copy.copy(vars(chain)) for chain in chains]
    world.sessions[-1].send(0, b"x")
    (_, data), *_ = world.sessions[-1].due(world.now)
    forged = bytearray(data)
    forged[26] ^= 9  # the number in the head
    world.sessions[0].take(bytes(forged), world.now)
    assert [vars(chain) for chain in chains] == before
    world.sessions[0].take(bytes(data), world.now)
    assert world.got[0] == [b"x"]
