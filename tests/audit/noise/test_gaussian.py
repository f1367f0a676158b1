"""The tests of noise keep their level, and see what they are for."""

import numpy as np
import pytest

from securevfl.audit.noise.calibration import sigma_of
from securevfl.audit.noise.gaussian import FAMILIES, battery
from securevfl.audit.noise.releases import NoisyRelease, clipped_to
from securevfl.audit.recording.recorded_run import RecordedMessage
from securevfl.privacy.mechanisms import clip_rows
from securevfl.protocols.base.messages import GaussianNoise, MessageKey

NOISE = GaussianNoise(
    *("features", 5.0, 1e-5, 1.0, "clip"),
    rows=lambda secrets, key: np.arange(7),
    exact=lambda secrets, key: np.zeros((7, 5)),
    releases=6,
)


def releases(stream, change=lambda noise, key: noise, rounds=6, clients=2, shape=(7, 5)):
    """Rows of clients and rounds, rounded to the library's grid, whose noise ``change`` alters."""
    found = []
    for round in range(rounds):
        for client in range(clients):
            key = MessageKey("embedding", round + 1, client, -1)
            exact = stream.normal(size=shape) * 0.7
            clipped = clipped_to(exact, NOISE.clip)
            noise = change(stream.standard_normal(shape), key)
            grid = 2.0**-14
            sent = np.round((clipped + sigma_of(NOISE) * noise) / grid) * grid
            message = RecordedMessage(key, b"", None)
            found.append(
                NoisyRelease(NOISE, (message,), np.arange(len(exact)), exact, exact, clipped, sent)
            )
    return found


def rejected(change, level=1e-7):
    stream = np.random.Generator(np.random.Philox(5))
    one, other = releases(stream, change), releases(stream, change)
    return {outcome.test for outcome in battery(one, other, level) if outcome.rejected}


def test_sound_noise_is_rejected_as_often_as_the_level_says():
    """200 batteries at the level 0.2: more than 67 would have a probability below 1e-5.

    Whether any family rejects is at most 0.2; none may be below the level of a verdict.
    """
    stream = np.random.Generator(np.random.Philox(11))
    alarms, smallest = 0, 1.0
    for _ in range(200):
        found = battery(releases(stream, rounds=4), releases(stream, rounds=4), 0.2)
        assert {one.test for one in found} == set(FAMILIES)
        alarms += any(one.rejected for one in found)
        smallest = min(smallest, *(one.p_value for one in found))
    assert alarms <= 67
    assert smallest > 1e-7 / len(FAMILIES)


class Kept:
    """The first noise of each client, again and again, up to a sign."""

    def __init__(self, sign=1):
        self.sign, self.first = sign, {}

    def __call__(self, noise, key):
        if key.sender in self.first:
            return self.first[key.sender] * self.sign
        self.first[key.sender] = noise
        return noise


class Shuffled(Kept):
    """The first noise of each client in another order each time."""

    def __call__(self, noise, key):
        order = np.random.Generator(np.random.Philox(key.round)).permutation(noise.size)
        return super().__call__(noise, key).reshape(-1)[order].reshape(noise.shape)


def partly_kept():
    last = {}

    def change(noise, key):
        mixed = 0.5 * last[key.sender] + 0.75**0.5 * noise if key.sender in last else noise
        last[key.sender] = mixed
        return mixed

    return change


def only_rows(noise, key):
    noise[2] = 0
    return noise


def rounds_from_four(noise, key):
    return noise if key.round < 4 else noise * 0


CHANGES = [
    ("moments", lambda noise, key: noise * 0.5),
    ("moments", lambda noise, key: noise + 1),
    ("exact values", only_rows),
    ("moments", rounds_from_four),
    ("distribution", lambda noise, key: np.sign(noise)),
    ("entries", lambda noise, key: np.repeat(noise[:, :1], 5, axis=1)),
    ("messages", Kept()),
    ("messages", Kept(-1)),
    ("messages", Shuffled()),
]


@pytest.mark.parametrize(("family", "change"), CHANGES)
def test_each_family_sees_its_fault(family, change):
    assert family in rejected(change)


def test_rows_with_common_noise_are_seen():
    wide = np.random.Generator(np.random.Philox(3))
    made = releases(wide, lambda noise, key: np.repeat(noise[:1], 7, axis=0), shape=(7, 60))
    assert {"rows"} <= {one.test for one in battery(made, [], 1e-7) if one.rejected}


def test_noise_that_is_partly_that_of_the_message_before_is_seen():
    made = releases(np.random.Generator(np.random.Philox(3)), partly_kept(), rounds=20)
    found = [one for one in battery(made, [], 1e-7) if one.rejected]
    assert [one.detail for one in found] == ["successive messages have partly common noise"]


def test_noise_of_a_run_that_comes_again_is_seen():
    made = releases(np.random.Generator(np.random.Philox(3)))
    assert [one.test for one in battery(made, made, 1e-7) if one.rejected] == ["other run"]
    assert not [one.test for one in battery(made, [], 1e-7) if one.rejected]


def test_noise_that_follows_the_rows_is_seen():
    stream = np.random.Generator(np.random.Philox(3))
    made = [
        NoisyRelease(
            one.noise, one.messages, one.samples, one.exact, one.exact, one.clipped,
            one.sent + one.exact,
        )
        for one in releases(stream, shape=(40, 20))
    ]  # fmt: skip
    assert "data" in {one.test for one in battery(made, [], 1e-7) if one.rejected}


def test_rows_are_clipped_as_the_mechanism_does():
    rows = np.random.Generator(np.random.Philox(3)).normal(size=(9, 4))
    rows[0] = 0
    assert np.allclose(clipped_to(rows, 1.2), clip_rows(rows, 1.2), rtol=1e-14)
