"""Outlines of messages agree with what the protocol declares of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import securevfl as svfl
from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.messages import MessageKey, MessageSpec, array_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.base.schedule import Outline, Post, Shape
from securevfl.protocols.coded_split.declaration import AGAIN
from securevfl.testing.runs import make

PARTIES = 6  # of the small data
# Options of protocols that have an outline; others are found without one.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "fedvs": [
        {},
        {"masked": False},
        {"secure": True, "segments": 2},
        {"privacy": 2, "pretrain": "p"},
        {"prime": 2**31 - 1, "data_bits": 5, "model_bits": 5},
    ],
    "coded_split": [
        {},
        {"secure": True, "segments": 2, "helpers": 2},
        {"privacy": 2, "helpers": 2},
        {"rounds": 132},
    ],
    "secagg_split": [{"quorum": PARTIES}, {"quorum": PARTIES, "security": "covert"}],
}
# Kinds that no message between two parties has, or only those of parties that were late.
UNPLANNED = {
    "coded_split": {"own-keys", "lacks", "missed"},
    "fedvs": {"own-keys"},
    "secagg_split": {"secret", "doubted", "history", "lacks", "missed"},
}


def outlined(name: str, options: dict[str, Any]) -> tuple[Protocol, Outline | None]:
    made = make(name, **options)
    data = made.data
    shape = Shape(tuple(data.widths), len(data.train_labels), len(data.test_labels))
    return made, made.outline(made.config, shape)


def keys(
    made: Protocol, post: Post, round: int, sender: int | None
) -> list[tuple[MessageKey, Any]]:
    """Every message of a post, with its skeleton; `sender` is None where clients send."""
    clients = list(made.peers())
    senders = (
        [SERVER] if sender == SERVER else list(post.senders(round)) if post.senders else clients
    )
    found = []
    for n in senders:
        receivers = {"server": [SERVER], "clients": clients}.get(post.to)
        if post.receivers is not None:
            receivers = list(post.receivers(n))
        for to in receivers or [m for m in clients if m != n]:
            payload = post.payloads[n] if len(post.payloads) > 1 else post.payloads[0]
            found.append((MessageKey(post.kind, round, n, to), payload))
    return found


def messages(made: Protocol, outline: Outline) -> list[tuple[MessageKey, Any]]:
    """Every message of an outline but the last word, with its skeleton."""
    found = [one for post in outline.setup for one in keys(made, post, 0, None)]
    round = 0
    for phase in outline.phases:
        for _ in range(phase.rounds):
            round += 1
            if phase.announcement is not None:
                opening = Post(ANNOUNCE, "clients", (phase.announcement,))
                found += keys(made, opening, round, SERVER)
            for stage in phase.stages:
                for post in stage.posts:
                    found += keys(made, post, round, None if stage.count else SERVER)
    return found


def declared(made: Protocol, key: MessageKey) -> list[MessageSpec]:
    roles = made.roles()
    return [
        one
        for one in made.messages
        if one.kind == key.kind
        and key.sender in roles[one.sender]
        and key.receiver in roles[one.receiver]
    ]


def test_every_protocol_with_an_outline_is_looked_at():
    with_outline = {
        name
        for name in find_protocols()
        if outlined(name, OPTIONS.get(name, [{}])[0])[1] is not None
    }
    assert with_outline == set(OPTIONS)


@pytest.mark.parametrize(
    ("name", "options"), [(name, one) for name, every in OPTIONS.items() for one in every]
)
def test_an_outline_has_the_kinds_roles_and_shapes_that_are_declared(name, options):
    made, outline = outlined(name, options)
    assert outline is not None
    found = messages(made, outline)
    posts = [*outline.setup, *(p for f in outline.phases for s in f.stages for p in s.posts)]
    for spec in made.messages:
        assert {p.modulus for p in posts if p.kind == spec.kind} <= {spec.modulus}, spec.kind
    for key, payload in found:
        specs = declared(made, key)
        assert len(specs) == 1, key
        (spec,) = specs
        allowed = (1, AGAIN) if name == "coded_split" else (1,)
        assert spec.count is None or spec.count(key) in allowed, key
        if spec.shape is not None:
            array = array_of(payload)
            assert array is not None, key
            assert spec.shape(key) == array.shape, key
            assert np.dtype(spec.dtype) == array.dtype, key
    kinds = {key.kind for key, _ in found} | {outline.end[0]}
    assert kinds == {spec.kind for spec in made.messages} - UNPLANNED.get(name, set())


def test_an_outline_sends_all_that_is_declared_and_no_more():
    """Each (kind, round, sender, receiver) with a count of 1, once."""
    made, outline = outlined("fedvs", {"secure": True, "segments": 2})
    assert outline is not None
    sent = sorted(key for key, _ in messages(made, outline))
    last = max(key.round for key in sent)
    roles, wanted = made.roles(), []
    for spec in made.messages:
        for round in range(last + 1):
            for sender in roles[spec.sender]:
                for receiver in roles.get(spec.receiver, ()):  # none of what a party keeps
                    key = MessageKey(spec.kind, round, sender, receiver)
                    opens = spec.kind != ANNOUNCE or round > 0
                    if sender != receiver and opens and (not spec.count or spec.count(key)):
                        wanted.append(key)
    assert sent == sorted(wanted)


@pytest.mark.parametrize("options", OPTIONS["coded_split"], ids=str)
def test_the_bytes_of_coded_split_are_those_of_its_runs(options):
    data = svfl.load_dataset("digits", parties=8).subset(103, 41)
    asked = {"rounds": 5, "batch": 16, "width": 5, "hidden": 6, **options}
    run = svfl.run("coded_split", data, **asked)
    planned = run.summary()["planned"]
    assert planned["bytes"] == planned["measured_bytes"] == run.transcript.bytes


def test_the_round_of_coded_split_is_timed_as_planned():
    data = svfl.load_dataset("digits", parties=8).subset(103, 21)
    run = svfl.run("coded_split", data, rounds=300, batch=16, width=2, hidden=2)
    planned = run.summary()["planned"]
    assert planned["round_seconds"] == pytest.approx(planned["measured_round_seconds"], rel=0.1)


def test_a_plan_of_coded_split_counts_its_bytes_and_says_which_helpers_are_needed():
    data = svfl.load_dataset("digits", parties=8).subset(103, 41)
    options = {"rounds": 5, "batch": 16, "width": 5, "hidden": 6}
    found = svfl.plan(data, protocol="coded_split", helpers=2, **options)
    assert [(one.segments, one.threshold, one.tolerated) for one in found.choices] == [
        (1, 4, 6), (2, 7, 3), (3, 10, 0),
    ]  # fmt: skip
    assert (found.parties, found.bits.prime) == (10, 2**50 - 2**14 + 1)
    assert 0 < found.bits.largest < found.bits.limit
    for one in found.choices:
        run = svfl.run("coded_split", data, helpers=2, segments=one.segments, **options)
        assert one.bytes == run.transcript.bytes
        assert one.simulation_memory == run.protocol.memory()
    with pytest.raises(
        ConfigurationError,
        match=r"need 10 results of 8 parties\. Use helpers = 2.*server runs counts",
    ):
        svfl.plan(data, protocol="coded_split", segments=3, **options)
    with pytest.raises(ConfigurationError, match="leave out timeouts and a release"):
        svfl.plan(data, protocol="coded_split", release=True, **options)
