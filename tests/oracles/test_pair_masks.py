"""Uploads that seeds hide are computed by other code, and masks of shares are looked for."""

import os

import numpy as np
import pytest

from securevfl.audit import randomness
from securevfl.audit.deviations import Declared
from securevfl.audit.recording.recorder import record
from securevfl.field import LagrangeCode, PrimeField, encoding, sampling
from securevfl.field.sampling import Keystream
from securevfl.protocols.secagg_split import algorithm, parameters
from securevfl.testing.runs import make
from tests.oracles.pair_masks import PairMasks, faults_of_shares, masks_of

STREAM, AGREE = parameters.Parameters.stream, algorithm.Pairing.agree
FILL = sampling.fill_uniform


def of_two_bytes(self, seed, shape):
    """The edit of a review: 65536 seeds are tried for each client and pair."""
    return STREAM(self, seed[:2] * 16, shape)


def ends_as_it_begins(self, seed, shape):
    found = STREAM(self, seed, shape)
    found.reshape(-1)[-5:] = found.reshape(-1)[:5]
    return found


def agreed_on_two_bytes(self, other, key):
    return AGREE(self, other, key)[:2] * 16


def without_the_round(self, other, key):
    return AGREE(algorithm.Pairing(self.index, 1, self.secret), other, key)


def wrong_uploads(**options):
    """Faults of all uploads of a run, each by other code."""
    run = record(make("secagg_split", **options))
    masks = PairMasks(run.protocol)
    declared = Declared(run.protocol)
    uploads = [
        message
        for message in run.sent_to_others
        if declared.spec_of(message.key).carries == "masked_result"
    ]
    assert uploads
    return {masks.fault(run, one.key, one.payload) for one in uploads}


@pytest.mark.parametrize("options", [{}, {"prime": 2**31 - 1, "bits": 12}])
def test_uploads_of_the_library_are_computed_alike(options):
    assert wrong_uploads(**options) == {""}


@pytest.mark.parametrize(
    ("owner", "name", "edit"),
    [
        (parameters.Parameters, "stream", of_two_bytes),
        (parameters.Parameters, "stream", ends_as_it_begins),
        (algorithm.Pairing, "agree", agreed_on_two_bytes),
        (algorithm.Pairing, "agree", without_the_round),
    ],
)
def test_other_streams_of_seeds_are_found(monkeypatch, owner, name, edit):
    monkeypatch.setattr(owner, name, edit)
    found = wrong_uploads(rounds=3)
    assert "an upload is not its value and the streams of its seeds" in found


@pytest.mark.parametrize("p", [97, 2**31 - 1, 2**61 - 1])
@pytest.mark.parametrize("T", [1, 2, 5])
def test_masks_are_solved_for(p, T):
    code = LagrangeCode(PrimeField(p), parties=7, segments=1, privacy=T, degree=1)
    values, masks = code.field.random((1, 10)), code.field.random((T, 10))
    shares = code.encode(values, masks=masks)
    assert np.array_equal(masks_of(code, values[0], shares), masks)


def edited(change):
    """`encoding.encode`, with a change of the masks that it draws."""

    def encode(field, left, data, masks, source, T, out, threads):
        if masks is None:
            masks = change(field, T, data.shape[1])
        return encoding.apply(left, [data, masks], out, threads)

    return encode


def equal_rows(field, T, size):
    return np.repeat(field.random((1, size)), T, axis=0)


def short_elements(field, T, size):
    return field.random((T, size)) % field.dtype.type(1 << 16)


def short_keys(field, T, size):
    drawn = np.empty((T, size), field.dtype)
    for row in drawn:
        FILL(field.modulus, row, Keystream(os.urandom(32)[:2] * 16, sampling.has_aes_unit()))
    return drawn


def known(field, T, size):
    return np.ones((T, size), field.dtype)


def faults(**options):
    with randomness.watch() as log:
        run = record(make("secagg_split", **options))
    rounds = sorted({message.key.round for message in run.messages})
    return list(faults_of_shares(run.protocol, run, rounds, log.keys))


@pytest.mark.parametrize("options", [{}, {"privacy": 2}, {"prime": 2**31 - 1, "bits": 12}])
def test_masks_of_shares_of_the_library_are_fresh(options):
    assert faults(**options) == []


@pytest.mark.parametrize("change", [equal_rows, short_elements, short_keys, known])
def test_other_masks_of_shares_are_found(monkeypatch, change):
    monkeypatch.setattr(encoding, "encode", edited(change))
    (found,) = faults(privacy=2)
    assert "masks of shares of seeds are no stream of a fresh key" in found


def test_masks_that_come_again_are_found(monkeypatch):
    kept = {}

    def again(field, T, size):
        return kept.setdefault((T, size), np.stack([field.random(size) for _ in range(T)]))

    monkeypatch.setattr(encoding, "encode", edited(again))
    (found,) = faults()
    assert found.startswith("23 of 24 ")  # 6 clients, 4 rounds: the first one is fresh
