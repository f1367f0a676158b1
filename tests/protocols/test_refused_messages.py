"""A message of another form is one clear error that names it, its sender, and what it must be.

Each row of the table is one kind of message of coded_split or FedVS with one thing wrong in it. The
run, in which one party sends it so, must end by a `ProtocolError` before anything is computed.
"""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.party import SERVER
from securevfl.errors import NotEnoughResultsError, ProtocolError
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import simulate

# Each owner of the tiny data has other columns, so shapes are looked for by their form.
SHAPE, KEYS = r"an array of shape \(\d+, \d+\), uint64", r"an array of shape \(\d+, 32\), uint8"
P40, P50 = 2**40 - 87, 2**50 - 2**14 + 1


def narrower(array):
    return np.ascontiguousarray(array[..., :-1])


def signed(array):
    return array.astype(np.int64)


def beyond(array):
    """With an element that is none of F_p."""
    found = array.copy()
    found.flat[-1] = 2**63
    return found


def listed(array):
    return array.tolist()


def second(change):
    """A change of the second of a pair."""
    return lambda pair: (pair[0], change(pair[1]))


def rows(change):
    """A change of the rows that are named."""
    return lambda named: (
        replace(named, rows=change(named.rows)) if hasattr(named, "rows") else named
    )


def unknown(numbers):
    return np.append(numbers[:-1], np.uint32(10**6)).astype(np.uint32)


def negative(numbers):
    return numbers.astype(np.int64) - 10**4


def repeated(numbers):
    return np.append(numbers[:-1], numbers[0]).astype(np.uint32)


FORMS = ((narrower, SHAPE), (signed, "int64"), (beyond, "9223372036854775808 in it, .*below p"),
         (listed, "is a list"))  # fmt: skip


def table():
    """Protocol, sender, kind, change, words of the error."""
    for protocol, share in (("coded_split", 1), ("fedvs", 1)):
        for change, words in FORMS:
            for kind in ("train-data", "model", "embedding"):
                yield protocol, share, kind, change, words
        yield protocol, 0, "key", narrower, KEYS
        yield protocol, 0, "key", signed, KEYS
    for change, words in FORMS:
        yield "coded_split", SERVER, "deal", second(change), words
        yield "coded_split", 1, "release", change, words
    yield "coded_split", SERVER, "seed", second(narrower), r"shape \(31,\), uint8, .* \(32,\)"
    yield "coded_split", SERVER, "deal", lambda pair: pair[1], "a pair of digest and share"
    yield "coded_split", SERVER, "deal", lambda pair: (b"x", pair[1]), "a digest of 32 bytes"
    yield "coded_split", SERVER, "request", rows(unknown), "a list with row 1000000, .* 0 to 40"
    yield "coded_split", SERVER, "request", rows(negative), r"shape \(41,\), int64"
    yield "coded_split", SERVER, "request", rows(repeated), "names a row twice"
    yield "coded_split", SERVER, "request", rows(lambda r: r[::-1].copy()), "rows 0 to 40 in order"
    yield "coded_split", SERVER, "request", lambda r: replace(r, piece=1), "is 1, .* from 0 to 0"
    yield "coded_split", SERVER, "request", lambda r: replace(r, part="train"), "for test rows"
    yield "fedvs", SERVER, ANNOUNCE, rows(unknown), "named row 1000000, .*Nothing was uploaded"
    yield "fedvs", SERVER, ANNOUNCE, rows(negative), "as int64 .*Nothing was uploaded"
    yield "fedvs", SERVER, "gradient", narrower, r"shape \(\d+, \d+\), float32"
    yield "fedvs", SERVER, "gradient", listed, "is a list"


def changing(party, kind, change):
    """Let a party send another payload in messages of a kind."""
    cls = type(party)

    class Changed(cls):
        """It departs from the protocol."""

        def _leaving(self, to, name, *given, **how):
            bare = super()._leaving(to, name, *given, **how)  # as it goes over the wire
            return change(bare) if name == kind else bare

    party.__class__ = Changed


def deviating(name, index, kind, change):
    cls = get_protocol(name)

    class Deviating(cls):
        """One party sends something else."""

        def parties(self):
            made = super().parties()
            changing(made[index], kind, change)
            return made

    return Deviating


def options_of(kind):
    return {"secure": True} if kind == "request" else {"release": True} if kind == "release" else {}


@pytest.mark.parametrize(("protocol", "sender", "kind", "change", "words"), list(table()))
def test_a_message_of_another_form_ends_the_run_by_one_clear_error(
    protocol, sender, kind, change, words
):
    with pytest.raises(ProtocolError, match=words) as told:
        simulate(deviating(protocol, sender, kind, change), **options_of(kind))
    who = "the server" if sender == SERVER else f"party {sender}"
    assert who in str(told.value)


@pytest.mark.parametrize("round", [0, 99])
def test_a_deal_of_no_round_of_the_run_is_refused(round):
    def late(party):
        send = party.send

        def sending(to, kind, payload, **how):
            send(to, kind, payload, **(how | {"round": round} if kind == "deal" else how))

        party.send = sending

    class Deviating(get_protocol("coded_split")):
        """Deals are of another round."""

        def parties(self):
            made = super().parties()
            late(made[SERVER])
            return made

    with pytest.raises(ProtocolError, match=rf"from the server is {round}, .* from 1 to \d+"):
        simulate(Deviating)


def test_uploads_of_another_form_are_left_out_where_wrong_ones_are_corrected():
    for change, _ in FORMS:
        liar = deviating("coded_split", 1, "embedding", change)
        outcome = simulate(liar, tolerate_corrupt=1)
        assert outcome.losses == simulate("coded_split", tolerate_corrupt=1).losses
        found = [event.fields["clients"] for event in outcome.events if event.name == "corrected"]
        assert found
        assert all(clients == [1] for clients in found)
    with pytest.raises(NotEnoughResultsError, match="have the form that was asked for"):
        simulate(twice(narrower), tolerate_corrupt=1)


def twice(change):
    """Two of six holders upload in another form, where one would be corrected."""

    class Deviating(deviating("coded_split", 1, "embedding", change)):
        """Four are left, and R = 4: three liars."""

        def parties(self):
            made = super().parties()
            for index in (2, 3):
                changing(made[index], "embedding", change)
            return made

    return Deviating
