"""Ways around messages: objects in common, enclosed columns, files, a sampler of its own."""

import copy
import inspect

import pytest

from securevfl.audit.beside.effects import watch_effects
from securevfl.audit.beside.held import digests, in_common
from securevfl.audit.beside.known_answers import sampler_fault
from securevfl.audit.following.sources import altered
from securevfl.engine.realtime.actor import PartyActor
from securevfl.field import PrimeField
from securevfl.testing.leaks import all_leaks
from securevfl.testing.runs import make, simulate

LEAKS = {one.name: one for one in all_leaks()}


def test_an_attribute_of_a_function_of_the_library_is_a_change_of_it():
    one = LEAKS["fedonce: labels on a function of the library"]
    with one.around():
        simulate(one.make())
        assert "securevfl.engine.party.Party.operations" in altered()
    assert altered() == []


def test_the_signatures_that_ray_sets_are_allowed_and_no_others(monkeypatch):
    """They are there as soon as a run on Ray was made in the process."""
    method = vars(PartyActor)["take"]
    monkeypatch.delattr(method, "__signature__", raising=False)  # such as of a run before
    own = inspect.signature(method)
    added = inspect.Parameter("_ray_trace_ctx", inspect.Parameter.KEYWORD_ONLY, default=None)
    signature = own.replace(parameters=[*own.parameters.values(), added])
    monkeypatch.setattr(method, "__signature__", signature, raising=False)
    assert altered() == []
    carried = added.replace(default=[0, 1, 1])
    other = own.replace(parameters=[*own.parameters.values(), carried])
    monkeypatch.setattr(method, "__signature__", other)
    assert altered() == ["securevfl.engine.realtime.actor.PartyActor.take"]


def test_kernels_that_are_kept_are_no_acts_of_parties(tmp_path):
    (tmp_path / "securevfl-kernels").mkdir()
    with watch_effects() as acts:
        (tmp_path / "securevfl-kernels" / "scalar.add.kernel").write_bytes(b"code")
    assert acts == []


@pytest.mark.parametrize("protocol", ["fedvs", "secagg_split", "coded_split"])
def test_sound_parties_share_no_object(protocol):
    assert in_common(make(protocol).parties()) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedvs: columns in the server's dictionary", "has the object of party -1"),
        ("fedvs: columns in a list of all clients", "have one list"),
    ],
)
def test_parties_that_share_an_object_are_found(name, words):
    assert words in in_common(make(LEAKS[name].make()).parties())


def test_what_a_function_encloses_counts_as_held():
    cls = LEAKS["fedvs: columns in a closure"].make()
    before = digests(make(cls).parties())
    assert before == digests(make(cls).parties())
    moved = copy.copy(make(cls).data)  # what all tests share stays as it is
    object.__setattr__(moved, "train", tuple(own[::-1].copy() for own in moved.train))
    after = digests(make(cls, moved).parties())
    assert before[-1] != after[-1]
    sound = digests(make("fedvs").parties())
    assert sound[-1] == digests(make("fedvs", moved).parties())[-1]


def test_files_that_are_written_are_told_and_files_that_are_read_are_not(tmp_path):
    with watch_effects() as acts:
        (tmp_path / "one").write_text("a column")
    assert acts == ["a file is written"]
    with watch_effects() as acts:
        (tmp_path / "one").read_text()
    assert acts == []


@pytest.mark.parametrize("p", [2**31 - 1, 2**50 - 2**14 + 1])
def test_the_sampler_gives_what_its_keys_say(p):
    assert sampler_fault(p, PrimeField(p).dtype) == ""


@pytest.mark.parametrize(
    "name",
    [
        "fedvs: keys of two bytes below the sampler",
        "fedvs: a keystream that begins again",
        "fedvs: half of a wide field",
    ],
)
def test_a_sampler_that_does_not_is_found(name):
    p = 2**50 - 2**14 + 1
    with LEAKS[name].around():
        assert sampler_fault(p, PrimeField(p).dtype)
