"""Rounds with a time: skip, zeros, buffer, message, mean, against one joint torch model."""

import numpy as np
import pytest
import torch

import securevfl
from securevfl.engine.conditions import NONE
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, RunError
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import Client, aggregate, data, loss_of, slow

N, ROUNDS = 4, 8
SMALL = {"rounds": ROUNDS, "batch": 30, "width": 5, "hidden": 7, "optimizer": "sgd"}
SMALL |= {"momentum": 0.0, "lr": 0.1, "timeout": 0.7}  # no multiple of a tick
RULES = ("zeros", "buffer", "message", "mean")
GONE = {2: {2, 3, 6}, 0: {3}}  # party -> rounds in which it is down; two epochs are six rounds
FAULTS = Faults(
    outages=tuple(Outage(n, rounds=(r, r + 1)) for n, rounds in GONE.items() for r in rounds)
)


def stands_for(rule, past, n, samples):
    """What is put for client n, from its (round, samples, embedding) of the past, row by row."""
    zero = np.zeros((len(samples), SMALL["width"]), np.float32)
    if rule == "buffer":
        last = {
            s: row for _, own, rows in past[n] for s, row in zip(own.tolist(), rows, strict=True)
        }
        return np.stack([last.get(s, zero[0]) for s in samples.tolist()])
    if rule == "message" and past[n]:
        rows = past[n][-1][2][: len(samples)]
        return np.concatenate([rows, zero[len(rows) :]])
    if rule == "mean" and past[n]:
        mean = past[n][0][2].mean(axis=0)
        for _, _, rows in past[n][1:]:
            mean = 0.9 * mean + 0.1 * rows.mean(axis=0)
        return np.broadcast_to(mean.astype(np.float32), zero.shape)
    return zero


def oracle(dataset, options):
    """Losses and weights of joint training in which constants stand for those who are gone."""
    made = make("split", dataset, **options)
    parties, config = made.parties(), made.config
    clients = {n: Client(bare_of(parties[n].network), config.degree, config.lr) for n in range(N)}
    centre = bare_of(parties[SERVER].centre).network
    step = torch.optim.SGD(centre.parameters(), lr=config.lr)
    losses, past = [], {n: [] for n in range(N)}
    for round in range(1, ROUNDS + 1):
        here = [n for n in range(N) if round not in GONE.get(n, ())]
        if config.stragglers == "skip" and len(here) < N:
            continue
        samples = made.layout.samples(made.layout.draw(round))
        embeddings = {n: clients[n].embed(dataset.train[n][samples]) for n in here}
        for n in here:
            past[n].append((round, samples, embeddings[n].detach().numpy()))
        for n in set(range(N)) - set(here):
            put = stands_for(config.stragglers, past, n, samples)
            embeddings[n] = torch.from_numpy(np.array(put))
        joint = aggregate(config.aggregation, dict(sorted(embeddings.items())), N)
        loss = loss_of(centre, joint, dataset.train_labels[samples])
        optimizers = [step, *(clients[n].optimizer for n in here)]
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses, clients


@pytest.mark.parametrize("aggregation", ["mean", "concat", "max"])
@pytest.mark.parametrize("rule", ["skip", *RULES])
def test_each_rule_is_joint_training_with_constants_for_the_absent(rule, aggregation):
    options = SMALL | {"stragglers": rule, "aggregation": aggregation}
    outcome = simulate("split", data(), conditions=NONE, faults=FAULTS, **options)
    with one_thread():
        losses, clients = oracle(data(), options)
    assert outcome.losses == pytest.approx(losses, rel=1e-4)
    assert len(losses) == (5 if rule == "skip" else ROUNDS)
    for n in range(N):
        trained = bare_of(outcome.parties[n].network).values
        np.testing.assert_allclose(trained, clients[n].weight.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_the_history_says_how_many_were_filled_in_and_how(rule):
    outcome = simulate("split", data(), conditions=NONE, faults=FAULTS, stragglers=rule, **SMALL)
    rows = [event.fields for event in outcome.events if event.name == "round"]
    assert [row["filled"] for row in rows] == [0, 1, 2, 0, 0, 1, 0, 0]
    assert [row["used"] for row in rows] == [4, 3, 2, 4, 4, 3, 4, 4]
    assert {row["how"] for row in rows} == {rule}
    # In the first epoch (rounds 1 to 3) no row has been seen before.
    unknown = {"zeros": [0] * 8, "message": [0] * 8, "mean": [0] * 8}.get(rule, [0, 30, 60, 0, 0])
    assert [row["unknown"] for row in rows][: len(unknown)] == unknown
    sent = outcome.simulation.transcript.columns()
    gradients = sent["kind"] == "gradient"
    per_party = np.bincount(sent["receiver"][gradients], minlength=N)
    assert per_party.tolist() == [ROUNDS - len(GONE.get(n, ())) for n in range(N)]


def test_a_skipped_round_is_told_and_sends_no_gradient():
    outcome = simulate("split", data(), conditions=NONE, faults=FAULTS, stragglers="skip", **SMALL)
    skipped = [event for event in outcome.events if event.name == "skipped"]
    assert [(e.round, e.fields["missing"]) for e in skipped] == [(2, [2]), (3, [0, 2]), (6, [2])]
    sent = outcome.simulation.transcript.columns()
    assert not set(sent["round"][sent["kind"] == "gradient"].tolist()) & {2, 3, 6}


@pytest.mark.parametrize("rule", RULES)
def test_a_straggler_is_filled_in_and_its_embeddings_are_late(rule):
    outcome = simulate("split", data(), conditions=slow(1), stragglers=rule, **SMALL)
    rows = [event for event in outcome.events if event.name == "round"]
    assert [row.fields["filled"] for row in rows] == [1] * ROUNDS
    assert rows[-1].time == ROUNDS * 7 * 10**8
    late = outcome.simulation.transcript.columns()
    assert set(late["sender"][late["late"] == 1].tolist()) == {1}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("aggregation", ["mean", "concat", "max"])
def test_with_everybody_in_time_all_rules_are_waiting(rule, aggregation):
    options = SMALL | {"aggregation": aggregation, "segments": 4}  # 4 does not divide the 90 rows
    timed = simulate("split", data(), conditions=NONE, stragglers=rule, **options)
    waiting = simulate("split", data(), conditions=NONE, **options | {"timeout": None})
    assert timed.losses == waiting.losses
    for n in range(N):
        trained = (bare_of(one.parties[n].network).values for one in (timed, waiting))
        np.testing.assert_array_equal(*trained)


# -- runs end ------------------------------------------------------------------------------------


def run(rule, faults, **options):
    chosen = {"rounds": 12, "conditions": "none", "sealed": False, "width": 6, "timeout": 0.7}
    dataset = data(N, 90)
    return securevfl.run("split", dataset, stragglers=rule, faults=faults, **chosen | options)


NASTY = {
    "all from the beginning": [{"party": n, "rounds": [0]} for n in range(N)],
    "one from the beginning": [{"party": 2, "rounds": [0]}],
    "one link from the beginning": [{"link": [1, "server"], "seconds": [0.0]}],
    "all links": [{"link": [n, "server"], "rounds": [4]} for n in range(N)],
    "all for a while": [{"party": n, "rounds": [3, 6]} for n in range(N)],
    "the server for a while": [{"party": "server", "rounds": [3, 6]}],
    "the server for good": [{"party": "server", "rounds": [5]}],
}


@pytest.mark.parametrize("rule", ["skip", *RULES])
@pytest.mark.parametrize("what", NASTY)
def test_it_ends_in_a_result_or_in_an_error_that_says_why(rule, what):
    try:
        result = run(rule, {"outage": NASTY[what]})
    except RunError as error:
        said = str(error)
        lost = what.startswith("all from") or (rule == "skip" and "from the beginning" in what)
        assert lost or what == "the server for good", said
        assert "round" in said
        assert "party" in said or "the server has been down" in said
        return
    assert what != "the server for good"
    summary = result.summary()
    counted = len(result.history) + summary["skipped"]
    assert counted == 12
    assert np.isfinite([row["loss"] for row in result.history]).all()
    assert bool(summary["filled"]) == (rule != "skip" and what.startswith("one"))


def test_a_round_without_anybody_is_skipped_and_not_trained_on_zeros():
    for rule in RULES:
        result = run(rule, {"outage": NASTY["all for a while"]})
        told = [event["round"] for event in result.events if event["event"] == "skipped"]
        assert told == [3, 4, 5]
        assert len(result.history) == 9


def test_a_run_in_which_nothing_was_trained_is_an_error():
    with pytest.raises(RunError) as caught:
        run("skip", {"outage": NASTY["one from the beginning"]})
    for words in ("All 12 rounds were skipped", "4 of 4 embeddings within 0.7 s", "party 2"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stragglers": "zeros"}, "needs a timeout"),
        ({"stragglers": "skip"}, "needs a timeout"),
        ({"timeout": 2.0}, "has no timeout, and timeout = 2 was given"),
        ({"stragglers": "ignore", "timeout": 2.0}, "has no timeout, and timeout = 2 was given"),
        ({"stragglers": "buffer", "timeout": 1.0, "quorum": 2}, "needs stragglers = 'ignore'"),
        ({"stragglers": "buffer", "timeout": 0.0}, "timeout"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_run(options, words):
    with pytest.raises(ConfigurationError, match=words):
        make("split", data(), **options)


def test_the_card_says_what_absence_does():
    for rule, says in (
        ("skip", "skips"),
        ("zeros", "fills"),
        ("buffer", "fills"),
        ("message", "fills"),
        ("mean", "fills"),
    ):
        assert make("split", data(), stragglers=rule, timeout=1.0).card.absence == says


def test_the_buffer_is_counted_and_is_no_part_of_the_model():
    plain, buffered = (make("split", data(), stragglers=r, timeout=1.0) for r in ("mean", "buffer"))
    assert (
        buffered.memory() - plain.memory()
        >= bare_of(buffered.parties()[SERVER].filling).last.nbytes
    )
    names = run("buffer", None).models()
    assert not [name for name in names if "table" in name or "filling" in name]
