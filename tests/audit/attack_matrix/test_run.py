"""The matrix of attacks: what roles see, what is attacked, how it is summed up and shown."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from securevfl.audit.attack_matrix import run as module
from securevfl.audit.attack_matrix.matrix import Matrix
from securevfl.audit.attack_matrix.observation import Recorder, observe
from securevfl.audit.attack_matrix.observed_run import ObservedRun, Table
from securevfl.audit.attack_matrix.on_shares import wilson
from securevfl.audit.attack_matrix.registry import BuiltIn
from securevfl.audit.attack_matrix.run import ATTACKS, AttackSettings, attack_matrix, write_matrix
from securevfl.audit.attacks.outcome import NoView
from securevfl.cli.app import app
from securevfl.data import load_dataset
from securevfl.data.overlap import limit_overlap
from securevfl.data.source import DataSource
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, RunError, UnknownNameError
from securevfl.plugins import Registry
from securevfl.protocols.base.card import Exposure
from securevfl.protocols.base.registry import find_protocols, get_protocol, make_config
from securevfl.runs.engines.run import Interrupted
from securevfl.testing.runs import make

SMALL = {"width": 24, "hidden": 16, "batch": 100}
DIGITS = DataSource("digits", {"parties": 5})
FEW = AttackSettings(
    rows=300, auxiliary=60, sum_rows=120, games=34, replayed=1, starts=1, watched=4
)


@functools.cache
def data() -> Any:
    return load_dataset("digits", parties=5).subset(300)


@functools.cache
def evidence(name: str, rounds: int = 9, **options: Any) -> ObservedRun:
    cls = get_protocol(name)
    known = {**SMALL, "rounds": rounds, **({"paper": True} if name == "fedvs" else {}), **options}
    made = cls(make_config(cls, known), data(), seed=0)
    return observe(made, conditions=NONE, client=1)


# -- what roles see ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["split", "vafl"])
def test_the_first_embedding_is_that_of_the_initial_network(name):
    found = evidence(name)
    rows, values = found.first_embedding()
    network = found.network(found.protocol.parties())
    assert np.allclose(values, network.forward(data().train[1][rows]), atol=1e-6)


@pytest.mark.parametrize("segments", [1, 2])
def test_the_joint_embedding_is_what_the_uploads_decode_to(segments):
    found = evidence("fedvs", segments=segments, masked=True)
    public = found.protocol.public
    last = max(found.observer_view.rounds("embedding"))
    uploads = found.observer_view.one_per_sender("embedding", last, SERVER)
    sums = public.code.decode(np.stack(list(uploads.values())), list(uploads), degree=2)
    bits = public.config.data_bits + public.config.model_bits
    mean = public.model_point.dequantize(sums.reshape(-1, 24), bits=bits) / 5
    announced = found.observer_view.payloads("round", round=last).popitem()[1]
    samples = found.protocol.named_rows(announced)
    table = found.joint
    places = np.searchsorted(table.rows, samples)
    assert np.array_equal(table.values[places], mean)


def test_gradients_come_with_their_rows_and_the_last_counts():
    found = evidence("split", aggregation="concat")
    table = found.gradients
    assert table.rows.tolist() == list(range(300))
    last = found.client_view.payloads("gradient", round=9, receiver=1).popitem()[1]
    samples = found.protocol.layout.samples(found.protocol.layout.draw(9))
    assert np.array_equal(table.values[np.searchsorted(table.rows, samples)], last)


def test_early_gradients_are_those_of_the_first_epoch():
    found = evidence("split", aggregation="concat")
    first = found.client_view.payloads("gradient", round=1, receiver=1).popitem()[1]
    samples = found.protocol.layout.samples(found.protocol.layout.draw(1))
    table = found.first_gradients
    assert np.array_equal(table.values[np.searchsorted(table.rows, samples)], first)
    assert table.rows.tolist() == list(range(300))


def test_rows_that_a_client_names_itself_are_those_of_its_gradient():
    found = evidence("vafl", rounds=40)
    sent = found.client_view.payloads("embedding").values()
    named = {
        int(r) for batch, _ in (s for s in sent if s) for r in found.protocol.named_rows(batch)
    }
    assert set(found.gradients.rows.tolist()) <= named


def test_uploads_of_all_clients_lie_side_by_side():
    table = evidence("fedvs", segments=2).uploads
    assert table.values.shape == (300, 5 * 24)
    assert table.values.max() > 2**48  # field elements of 50 bits, not embeddings
    # Both samples of a coded row have the same upload.
    layout = evidence("fedvs", segments=2).protocol.train_layout()
    first, second = layout.samples(np.array([0]))
    assert np.array_equal(table.values[first], table.values[second])


def test_what_is_not_sent_is_not_seen():
    assert isinstance(evidence("fedvs").embeddings, NoView)
    assert isinstance(evidence("fedvs").first_embedding(), NoView)
    assert isinstance(evidence("split").uploads, NoView)
    plain = evidence("split", aggregation="concat")
    assert all(m.payload is None for m in plain.client_view.messages if m.kind == "embedding"
               and m.sender != 1)  # fmt: skip


def test_hidden_embeddings_are_read_off_the_claims():
    carried = {
        name: dict.fromkeys((e.carries for e in evidence(name).protocol.exposures), True)
        for name in ("split", "wait_dp", "secagg_split")
    }
    assert list(carried["split"]) == list(carried["wait_dp"]) == ["embedding", "gradient"]
    assert list(carried["secagg_split"]) == ["upload", "gradient"]


def test_a_recorder_keeps_the_first_and_the_last():
    recorder = Recorder(lambda kind, sender, receiver: kind == "a", 2)
    for number in range(5):
        recorder.add(0, 1, "a", number, 10, 0, number)
        recorder.add(0, 1, "b", number, 10, 0, number)
    recorder.add(-1, 1, "round", 5, 10, 0, "batch")
    assert recorder.payloads == [0, None, None, None, None, None, 3, None, 4, None, "batch"]
    assert (recorder.bytes, recorder.messages) == (110, 11)


def test_ciphertexts_are_no_numbers():
    found = evidence("split")
    assert found.protocol.shown((b"one", b"two")) == (None, (b"one", b"two"))


# -- the matrix ----------------------------------------------------------------------------------


@functools.cache
def matrix() -> Matrix:
    return attack_matrix(
        ["split", "fedvs:paper=true", "fedvs:paper=true,masked=false"],
        DIGITS,
        options={**SMALL, "segments": 1, "width": 48},
        rounds=40,
        seeds=(0,),
        settings=FEW,
    )


def verdicts(protocol: str) -> dict[str, str]:
    return {name: matrix().cell(protocol, name)["verdict"] for name in ATTACKS.all()}


def test_plain_split_learning_falls_to_every_attack_on_embeddings():
    found = verdicts("split")
    for name in ("model stealing", "inversion", "equality solving", "gradient directions"):
        assert found[name] == "above chance", name
    assert matrix().cell("split", "equality solving")["success"] > 0.99
    assert found["rank of uploads"] == found["server + T clients"] == "no view"


def test_uploads_of_fedvs_say_nothing():
    for protocol in ("fedvs:paper=true", "fedvs:paper=true,masked=false"):
        for name in ("model stealing", "inversion"):
            cell = matrix().cell(protocol, name)
            assert "upload" in cell["note"]
            # Masks are drawn anew in every run. Of 3000 fits to random numbers of these shapes
            # none explains more than 0.008 of the error, and fewer by a factor e for each 0.0012
            # more. How much worse than the mean a fit may be has no bound: one was by 1.07.
            assert -math.inf < cell["success"] < 0.05
    assert matrix().cell("fedvs:paper=true", "server + T clients")["success"] == 0
    # A fair coin is right in 31 of 34 guesses or more with probability 3.8e-7.
    assert matrix().cell("fedvs:paper=true", "rank of uploads")["success"] < 31 / 34


def test_plain_evaluation_falls_to_ranks_and_to_one_client():
    assert matrix().cell("fedvs:paper=true,masked=false", "server + T clients")["success"] == 1
    assert matrix().cell("fedvs:paper=true,masked=false", "rank of uploads")["success"] == 1


def test_gradients_and_sums_leak_from_every_method():
    for label in matrix().labels:
        for name in ("gradient directions", "span of sums", "completion of sums"):
            assert matrix().cell(label, name)["verdict"] == "above chance", (label, name)


def test_shares_of_one_client_more_than_t_give_everything_for_k_of_one():
    cell = matrix().cell("fedvs:paper=true", "shares of T + 1 clients")
    assert (cell["success"], cell["chance"], cell["verdict"]) == (1.0, 0.0, "above chance")


def test_rows_are_tidy_and_a_view_that_is_missing_says_why():
    rows = matrix().rows
    assert len(rows) == 3 * len(ATTACKS.all())
    for row in rows:
        assert (row["success"] is None) == (row["samples"] == 0)
        assert row["success"] is not None or row["note"]
        if row["success"] is not None and row["metric"] != "right guesses":
            assert row["low"] - 1e-9 <= row["success"] <= row["high"] + 1e-9 or row["samples"] < 40
    assert matrix().cell("split", "gradient norm")["note"].startswith("gradient norm: 10 classes")


def test_the_matrix_stands_beside_accuracy_time_and_bytes():
    figures = matrix().figures["fedvs:paper=true"]
    assert figures["test_accuracy"]["mean"] > 0.5
    assert figures["bytes"]["mean"] > matrix().figures["split"]["bytes"]["mean"]
    assert set(figures) == {"test_accuracy", "virtual_seconds", "bytes"}


def test_it_is_written_with_a_picture(tmp_path):
    content = write_matrix(matrix(), tmp_path / "deep" / "attacks.json", more=1)
    read = json.loads((tmp_path / "deep" / "attacks.json").read_text())
    assert read["cells"] == json.loads(json.dumps(content["cells"]))
    assert read["more"] == 1
    assert (tmp_path / "deep" / "attacks.png").stat().st_size > 10_000


def test_a_cell_over_seeds_has_the_interval_of_paired_differences():
    rows = [
        {"success": s, "chance": c, "metric": "AUC", "note": "", "low": 0, "high": 1}
        for s, c in ((0.9, 0.5), (0.8, 0.5), (0.7, 0.4))
    ]
    cell = module._cell(rows)
    assert cell["excess"] == pytest.approx(1 / 3)
    assert cell["high"] - cell["excess"] == pytest.approx(4.302653 * 0.0577350 / 3**0.5, rel=1e-5)
    assert (cell["verdict"], cell["seeds"]) == ("above chance", 3)
    empty = {"success": None, "note": "nothing is sent"}
    assert module._cell([empty])["verdict"] == "no view"
    nothing_to_find = {"success": 0.0, "chance": None, "note": "all rows known"}
    assert module._cell([nothing_to_find])["verdict"] == "no view"


def test_rows_that_one_party_holds_alone_are_no_training_rows_of_a_table():
    data = limit_overlap(load_dataset("digits", parties=3).subset(90, 20), 30)
    made = make("local", data, rounds=6, batch=20)
    seen = observe(made, conditions=NONE, client=0)
    assert made.describe()["labelled_rows"] == 50
    assert len(seen.joint.rows) > 10
    assert set(seen.joint.rows.tolist()) <= set(range(30))
    assert set(seen.embeddings.rows.tolist()) <= set(range(30))


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch):
    def once(count: int) -> Matrix:
        return attack_matrix(
            ["split"], DIGITS, options=SMALL, rounds=3, seeds=range(count), settings=FEW,
            attacks=["gradient directions"], folder=tmp_path,
        )  # fmt: skip

    first = once(1)
    ran: list[int] = []
    attack = module._attack

    def attacked(work, *more):
        ran.append(work.job.seed)
        attack(work, *more)

    monkeypatch.setattr(module, "_attack", attacked)
    assert once(2).rows[0] == first.rows[0]
    assert ran == [1]


def test_a_protocol_that_declares_nothing_has_nothing_to_attack(monkeypatch):
    class Silent(get_protocol("split")):  # type: ignore[misc]
        name = "silent"
        exposures = ()

    known = {**find_protocols(), "silent": Silent}
    monkeypatch.setattr("securevfl.protocols.base.registry.find_protocols", lambda: known)
    names = ["gradient directions", "model stealing", "inversion", "equality solving"]
    found = attack_matrix(
        ["silent"], DIGITS, options=SMALL, rounds=2, seeds=[0], settings=FEW, attacks=names
    )
    assert {cell["verdict"] for cell in found.cells} == {"no view"}
    assert found.cells[0]["note"] == "no gradient is returned to the clients"


def test_embeddings_that_are_called_uploads_are_found_out(monkeypatch):
    """Planted leak: were uploads embeddings, the attacks on uploads would say so."""

    class Claimed(get_protocol("split")):  # type: ignore[misc]
        name = "claimed"
        exposures = (Exposure("embedding", "upload"),)

    known = {**find_protocols(), "claimed": Claimed}
    monkeypatch.setattr("securevfl.protocols.base.registry.find_protocols", lambda: known)
    found = attack_matrix(
        ["claimed"], DIGITS, options=SMALL, rounds=20, seeds=[0], settings=FEW,
        attacks=["inversion", "model stealing"],
    )  # fmt: skip
    for cell in found.cells:
        assert "uploads" in cell["note"]
        assert cell["success"] > 0.5


def test_an_attack_that_breaks_is_no_missing_view(monkeypatch):
    def breaks(_case):
        raise RunError("the run of the attacker broke")

    for attack, verdict in ((breaks, "FAILED"), (lambda _: NoView("nothing to see"), "no view")):
        only = {"own": BuiltIn("own", "client", "labels", attack)}
        registry = Registry("securevfl.none", "attack", lambda only=only: only, lambda _: True)
        monkeypatch.setattr(module, "ATTACKS", registry)
        found = attack_matrix(["split"], DIGITS, options=SMALL, rounds=2, seeds=[0], settings=FEW)
        assert [cell["verdict"] for cell in found.cells] == [verdict]
        assert found.cells[0]["success"] is None
        assert bool(found.rows[0].get("failed")) is (verdict == "FAILED")


def test_an_attack_whose_algebra_fails_leaves_the_others_their_results(monkeypatch):
    """It was a traceback, and the whole table was lost."""

    def fails(_case):
        raise np.linalg.LinAlgError("SVD did not converge")

    both = {"own": fails, "other": lambda _: NoView("nothing to see")}
    every = {name: BuiltIn(name, "client", "labels", attack) for name, attack in both.items()}
    registry = Registry("securevfl.none", "attack", lambda: every, lambda _: True)
    monkeypatch.setattr(module, "ATTACKS", registry)
    found = attack_matrix(["split"], DIGITS, options=SMALL, rounds=2, seeds=[0], settings=FEW)
    assert {cell["attack"]: cell["verdict"] for cell in found.cells} == {
        "own": "FAILED",
        "other": "no view",
    }
    assert found.cell("split", "own")["note"] == "LinAlgError: SVD did not converge"


def test_an_attack_that_fails_on_one_seed_has_failed():
    good = {"success": 1.0, "chance": 0.5, "low": 0.9, "high": 1.0, "metric": "m", "note": ""}
    bad = dict.fromkeys(good) | {"failed": True, "note": "broke"}
    assert module._cell([good, bad])["verdict"] == "FAILED"
    assert module._cell([good, good])["verdict"] == "above chance"


def test_wrong_names_and_clients_are_refused():
    with pytest.raises(UnknownNameError, match="unknown attack 'inversions': did you mean"):
        attack_matrix(["split"], DIGITS, attacks=["inversions"])
    with pytest.raises(ConfigurationError, match="no client 9"):
        attack_matrix(["split"], DIGITS, settings=AttackSettings(client=9), seeds=[0])


def test_a_variant_that_cannot_run_is_refused_before_any_other_runs(monkeypatch):
    monkeypatch.setattr(module, "_attack", None)
    with pytest.raises(ConfigurationError, match="K = 9"):
        attack_matrix(["split", "fedvs:segments=9"], DIGITS, seeds=[0])


def test_an_interrupted_matrix_goes_on_from_the_attacks_that_were_made(tmp_path):
    parts: list[float] = []
    names = ["gradient norm", "gradient clusters"]

    def start(**asked: Any) -> Matrix:
        return attack_matrix(
            *(["split"], DIGITS),
            attacks=names,
            seeds=[0],
            options=SMALL,
            rounds=3,
            settings=FEW,
            watch=lambda _, part: parts.append(part),
            **asked,
        )

    with pytest.raises(Interrupted) as caught:
        start(folder=tmp_path, interrupted=lambda: len(parts) == 2)  # before the second attack
    assert parts == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert [cell["attack"] for cell in caught.value.so_far.cells] == names[:1]
    parts.clear()
    assert start(folder=tmp_path).rows == start().rows
    assert parts == [pytest.approx(2 / 3), pytest.approx(1 / 3), pytest.approx(2 / 3)]


def test_intervals_of_proportions():
    low, high = wilson(0, 10)
    assert (low, high) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(20, 40) == pytest.approx((0.3520, 0.6480), abs=1e-4)


def test_tables_have_each_row_once():
    table = evidence("split").embeddings
    assert isinstance(table, Table)
    assert np.array_equal(table.rows, np.unique(table.rows))


# -- the command line ----------------------------------------------------------------------------


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="securevfl")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command line whose attacks are three, on few rows."""
    chosen = {n: ATTACKS.get(n) for n in ("gradient norm", "gradient directions", "inversion")}
    few_attacks = Registry("securevfl.none", "attack", lambda: chosen, lambda _: True)
    monkeypatch.setattr(module, "ATTACKS", few_attacks)
    monkeypatch.setattr(module, "AttackSettings", lambda: FEW)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


TWO = ("compare", "split", "fedvs", "--attacks", "--rounds", "3", "--parties", "5", "--seeds", "1")


@pytest.mark.usefixtures("few")
def test_compare_prints_the_matrix_and_writes_it():
    result = call(*TWO, "--width", "8")
    assert result.exit_code == 0, result.output
    for part in ("attacks on digits", "test accuracy", "client, on labels", "gradient directions"):
        assert part in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "gradient norm" in line]
    assert line.split() == ["gradient", "norm", "-", "-"]
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("attacks-digits-")
    assert {p.name for p in folder.iterdir()} == {"attacks.json", "attacks.png", "jobs"}


@pytest.mark.usefixtures("few")
def test_compare_prints_the_matrix_as_one_object():
    result = call(*TWO, "--width", "8", "--json", "--out", "here")
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["run_folder"] == "here"
    assert found["labels"] == ["split", "fedvs"]
    assert found["settings"]["options"] == {"width": "8", "rounds": 3}
    assert {c["verdict"] for c in found["cells"] if c["attack"] == "gradient norm"} == {"no view"}


@pytest.mark.parametrize(
    ("more", "part"), [("--workers=2", "runs in one process"), ("--faults=f.toml", "leave out")]
)
def test_workers_and_faults_are_not_for_attacks(more, part):
    result = call(*TWO, more)
    assert result.exit_code == 2
    assert part in result.stderr
