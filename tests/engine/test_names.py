"""What people call parties: in cells, in sentences, in errors, and as words that they type."""

from __future__ import annotations

import pytest

from securevfl.engine.names import PartyNames
from securevfl.errors import DataError, RunError, UnknownNameError

NAMES = PartyNames(["bank", "party 1", "shop"])


def test_names_in_cells():
    assert [NAMES[n] for n in (-1, 0, 1, 2, 3)] == ["server", "bank", "party 1", "shop", "party 3"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("party 0 is down", "bank (party 0) is down"),
        ("missing: client 0, client 2", "missing: bank (client 0), shop (client 2)"),
        ("client 0's labels", "bank's labels"),
        ("party 1 and party 7", "party 1 and party 7"),
        ("shop (party 2) went down", "shop (party 2) went down"),
        ("party-0.npz, clients 1 to 2", "party-0.npz, clients 1 to 2"),
        ("a counterparty 0", "a counterparty 0"),
    ],
)
def test_names_in_sentences(text, wanted):
    assert NAMES.in_text(text) == wanted


@pytest.mark.parametrize(
    ("word", "number"),
    [("bank", 0), ("shop", 2), ("server", -1), ("party-1", 1), ("3", 3), ("bnak", None)],
)
def test_words_that_people_type(word, number):
    assert NAMES.number(word) == number


def test_parties_without_names():
    names = PartyNames(["party 0", "party 1"])
    assert not names
    assert names.in_text("party 0 is down") == "party 0 is down"
    assert names.listed() == ""


@pytest.mark.parametrize("kind", [RunError, DataError])
def test_errors_that_leave_the_block_name_the_parties(kind):
    with pytest.raises(kind, match=r"^bank \(party 0\) is down$"), NAMES.in_errors():
        raise kind("party 0 is down")


def test_other_errors_are_left_alone():
    with pytest.raises(KeyError, match="party 0"), NAMES.in_errors():
        raise KeyError("party 0")
    with pytest.raises(UnknownNameError, match="did you mean ab"), NAMES.in_errors():
        raise UnknownNameError("option", "abc", ["ab"])
