"""Encoders that learn without labels, against plain torch."""

import numpy as np
import pytest
import torch

from securevfl.engine import wire
from securevfl.errors import DivergedError
from securevfl.models.pretraining.augmentations import MASKED, NOISE, SHIFT, two_views
from securevfl.models.pretraining.autoencoder import make_autoencoder, make_contrastive
from securevfl.models.pretraining.contrast import nt_xent

ADAM = {"name": "adam", "lr": 0.01, "weight_decay": 1e-4}


def stream(key):
    return np.random.Generator(np.random.Philox(key))


ROWS = stream(1).random((20, 6)).astype(np.float32)


def test_an_autoencoder_steps_as_torch_does():
    ours = make_autoencoder(6, 5, 3, stream=stream(2), optimizer=ADAM)
    theirs = make_autoencoder(6, 5, 3, stream=stream(2), optimizer=ADAM)
    whole = torch.nn.Sequential(theirs.module, theirs.head)
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.01, weight_decay=1e-4)
    x = torch.from_numpy(ROWS.copy())
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((whole(x) - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        assert ours.train(ROWS, stream(0)) == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(ours.encode(ROWS), theirs.module(x).detach().numpy(), rtol=1e-5)


def test_a_contrastive_encoder_compares_two_views():
    learner = make_contrastive(6, 5, 3, stream=stream(2), optimizer=ADAM, temperature=0.3)
    one, two = (torch.from_numpy(view) for view in two_views(ROWS, stream(4)))
    project = torch.nn.Sequential(learner.module, learner.head)
    wanted = nt_xent(project(one), project(two), 0.3).item()
    assert learner.train(ROWS, stream(4)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("make", [make_autoencoder, make_contrastive])
def test_it_learns(make):
    rows = (stream(3).random((64, 2)) @ stream(4).random((2, 8)) / 2).astype(np.float32)
    learner = make(8, 6, 2, stream=stream(5), optimizer=ADAM, output="leaky_relu")
    losses = [learner.train(rows, stream(n)) for n in range(200)]
    assert np.mean(losses[-20:]) < 0.95 * np.mean(losses[:20])


@pytest.mark.parametrize("make", [make_autoencoder, make_contrastive])
def test_its_state_goes_through_bytes(make):
    learner = make(6, 5, 3, stream=stream(2), optimizer=ADAM)
    learner.train(ROWS, stream(0))
    copy = make(6, 5, 3, stream=stream(9), optimizer=ADAM)
    copy.load_state_dict(wire.decode(wire.encode(learner.state_dict())))
    assert copy.train(ROWS, stream(1)) == learner.train(ROWS, stream(1))
    assert (copy.encode(ROWS) == learner.encode(ROWS)).all()


def test_codes_are_those_of_the_last_activation():
    codes = make_autoencoder(6, 5, 40, stream=stream(2), optimizer=ADAM).encode(ROWS)
    assert codes.dtype == np.float32
    assert codes.shape == (20, 40)
    assert (codes >= 0).all()
    leaky = make_autoencoder(6, 5, 40, stream=stream(2), optimizer=ADAM, output="leaky_relu")
    found = leaky.encode(ROWS)
    assert (found < 0).any()
    np.testing.assert_array_equal(np.maximum(found, 0), codes)


def test_the_global_generator_is_not_moved():
    before = torch.get_rng_state()
    make_contrastive(6, 5, 3, stream=stream(2), optimizer=ADAM).train(ROWS, stream(1))
    assert (torch.get_rng_state() == before).all()


def test_a_loss_that_is_not_finite_ends_the_run():
    learner = make_autoencoder(6, 5, 3, stream=stream(2), optimizer=ADAM | {"lr": 1e30})
    learner.train(ROWS, stream(0))
    with pytest.raises(DivergedError, match=r"lower its lr \(1e\+30\)"):
        learner.train(ROWS, stream(0))


def test_a_view_of_a_table_mixes_the_values_of_a_column():
    rows = np.arange(400.0).reshape(100, 4) * 10
    view, other = two_views(rows, stream(3))
    assert not np.array_equal(view, other)
    kept = np.abs(view - rows) < 8 * NOISE
    assert abs(1 - kept.mean() - MASKED) < 0.1  # five standard deviations of 400 draws
    nearest = np.abs(view[:, None, :] - rows[None, :, :]).min(axis=1)
    assert nearest.max() < 8 * NOISE


def test_a_view_of_an_image_is_moved_and_padded_by_zeros():
    image = np.zeros((50, 2, 7, 9), np.float32)
    image[:, 0, 3, 4] = 10
    image[:, 1, 3, 4] = 20
    view, _ = two_views(image.reshape(50, -1), stream(3), (2, 7, 9))
    places = set()
    for moved in view.reshape(image.shape):
        spots = [np.unravel_index(channel.argmax(), channel.shape) for channel in moved]
        assert spots[0] == spots[1]
        assert moved[1][spots[1]] == pytest.approx(20, abs=8 * NOISE)
        places.add((int(spots[0][0]) - 3, int(spots[0][1]) - 4))
    assert {y for y, _ in places} == {-1, 0, 1}  # a quarter of seven pixels
    assert {x for _, x in places} == set(range(-SHIFT, SHIFT + 1))


def test_a_strip_one_pixel_high_is_moved_sideways_only():
    view, _ = two_views(np.ones((9, 8), np.float32), stream(3), (1, 1, 8))
    assert (np.abs(view - 1) < 8 * NOISE).mean() > 0.7
