"""The strongest attacks on a run, by what they are after."""

from securevfl.audit.attack_matrix import strongest as module
from securevfl.audit.attack_matrix.registry import ATTACKS
from securevfl.audit.attack_matrix.setting import AttackSettings
from securevfl.audit.attack_matrix.strongest import GROUPS, strongest
from securevfl.audit.attacks.outcome import NoView, Outcome
from securevfl.errors import RunError
from securevfl.studies.jobs import Job

FEW = AttackSettings(rows=200, auxiliary=60, sum_rows=100, watched=4)


def job(protocol, **options):
    return Job(
        label=protocol, protocol=protocol, options={"rounds": 6, "width": 16, **options},
        dataset="digits", data={"parties": 4, "seed": 0}, conditions="none", seed=0, sealed=False,
    )  # fmt: skip


def test_attacks_of_the_groups_are_those_of_the_matrix():
    for names in GROUPS.values():
        for name in names:
            assert ATTACKS.get(name).name == name


def test_of_each_group_the_attack_furthest_above_chance_is_told(monkeypatch):
    got = {"far": Outcome("m", 0.6, 0.1, 0, 1, 9), "high": Outcome("m", 0.9, 0.8, 0, 1, 9),
           "blind": NoView("no embeddings")}  # fmt: skip
    monkeypatch.setattr(module, "ATTACKS", {name: name for name in got})
    monkeypatch.setattr(module, "tried", lambda name, case: got[name])
    monkeypatch.setattr(module, "GROUPS", {"one": tuple(got), "none": ("blind",)})
    assert strongest(job("split"), FEW) == {
        "one": {"attack": "far", "success": 0.6, "chance": 0.1, "of": "m"},
        "none": None,
    }


def test_plain_embeddings_are_inverted_and_gradients_tell_labels(monkeypatch):
    few = {"columns": ("inversion",), "labels": ("gradient directions",)}
    monkeypatch.setattr(module, "GROUPS", few)
    found = strongest(job("split"), FEW)
    assert found["columns"]["success"] > 0.5
    assert found["labels"]["success"] > found["labels"]["chance"] + 0.3


def test_a_run_that_cannot_be_recorded_gives_no_view(monkeypatch):
    def failing(*_, **__):
        raise RunError("nobody answers")

    monkeypatch.setattr("securevfl.audit.attack_matrix.setting.observe", failing)
    assert strongest(job("split"), FEW) == dict.fromkeys(GROUPS)
