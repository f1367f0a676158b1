"""A run of which parties cannot see that it is recorded."""

import os
import random
import threading

import pytest
import torch

from securevfl.audit.deviations import compare
from securevfl.audit.recording.recorder import record
from securevfl.audit.unobserved import compare_unobserved
from securevfl.engine.streams import OwnEntropy
from securevfl.models.split import Centre
from securevfl.testing.leaks import all_leaks, sound_variants
from securevfl.testing.runs import make

FEDVS = {"prime": 2**31 - 1, "data_bits": 6, "model_bits": 6, "weight_bound": 2.0}
LEAKS = {one.name: one for one in all_leaks()}
VARIANTS = {one.name: one for one in sound_variants()}
LOOKING = ("fedvs: V zero where no verifier calls", "fedvs: V zero where draws are its own")


@pytest.mark.parametrize("name", LOOKING)
def test_a_leak_that_looks_for_its_recorder_is_found_here_and_nowhere_else(name):
    leak = LEAKS[name]
    assert compare(record(make(leak.make()))).deviations == ()
    found = compare_unobserved(make(leak.make()))
    assert {one.key.kind for one in found.deviations} == {"model"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fedvs: data of a party that is made alone without masks", "train-data"),
        ("fedvs: a party's own entropy is not taken", "model"),
    ],
)
def test_parties_that_are_made_alone_are_held_against_those_made_together(name, kind):
    leak = LEAKS[name]
    assert compare(record(make(leak.make()))).deviations == ()
    found = compare_unobserved(make(leak.make()))
    assert kind in {one.key.kind for one in found.deviations}


def test_each_party_is_made_by_its_own_entropy_alone():
    made = []

    class Noting(type(make("fedvs", **FEDVS))):
        """FedVS that notes by whose entropy a party was asked for."""

        def party(self, index):
            made.append((index, self.secrets))
            return super().party(index)

    assert compare_unobserved(make(Noting, **FEDVS)).deviations == ()
    assert all(isinstance(one, OwnEntropy) and one.index == n for n, one in made)
    assert sorted(n for n, _ in made) == [-1, *make("fedvs").peers()]


def test_nothing_is_left_in_the_place_of_the_systems_source():
    """The run is watched within stand-ins, which must not stay when it is over."""
    before = os.urandom, vars(random)["_urandom"]
    compare_unobserved(make("secagg_split"))
    assert (os.urandom, vars(random)["_urandom"]) == before


@pytest.mark.parametrize("name", ["fedvs", "secagg_split", "multivfl", "fedhssl", "split"])
def test_a_sound_run_is_as_declared(name):
    found = compare_unobserved(make(name, **(FEDVS if name == "fedvs" else {})))
    assert found.deviations == ()
    assert found.computed == found.messages > 0
    assert found.forgotten == 0


def test_draws_whose_number_depends_on_chance_are_known():
    times = {"share_timeout": 1.0, "result_timeout": 9.0}
    found = compare_unobserved(make("fedvs", **FEDVS, **times))
    assert found.deviations == ()
    assert found.forgotten == 0
    assert found.computed == found.messages > 0


@pytest.mark.parametrize("name", ["fedvs: Z in two draws", "fedvs: copied draws"])
def test_who_draws_otherwise_is_not_blamed(name):
    found = compare_unobserved(make(VARIANTS[name].make()))
    assert found.deviations == ()
    assert (found.forgotten > 0) == (name == "fedvs: Z in two draws")


def test_the_thread_of_the_parties_asks_to_compute_alone(monkeypatch):
    """A new thread has helpers on every core, and its float sums would not be the compared ones."""
    asked, stepped = set(), set()
    step, limit = Centre.step, torch.set_num_threads

    def noted_step(self, *arguments, **options):
        stepped.add(threading.get_ident())
        return step(self, *arguments, **options)

    def noted_limit(number):
        asked.add((threading.get_ident(), number))
        limit(number)

    monkeypatch.setattr(Centre, "step", noted_step)
    monkeypatch.setattr(torch, "set_num_threads", noted_limit)
    compare_unobserved(make("split"))
    alone = stepped - {threading.get_ident()}
    assert len(alone) == 1
    assert {(thread, 1) for thread in alone} <= asked


def test_parties_are_as_the_protocol_makes_them():
    """Nothing is put into a party, and no code of the audit has called it."""
    seen = []

    class Looking(type(make("fedvs", **FEDVS))):
        """FedVS that notes what its clients could see."""

        def parties(self):
            made = super().parties()
            quantised = made[0].quantised_model

            def looking():
                import sys

                frame, files = sys._getframe(), []
                while frame is not None:
                    files.append(frame.f_code.co_filename)
                    frame = frame.f_back
                seen.append(
                    ("uniform" in vars(made[0]), any("securevfl/audit/" in f for f in files))
                )
                return quantised()

            made[0].quantised_model = looking
            return made

    found = compare_unobserved(make(Looking, **FEDVS))
    assert found.deviations == ()
    assert set(seen) == {(False, False)}
    assert found.forgotten == 0
