"""A party's own checkpoints: which are kept, which can be read, and who may write them."""

import subprocess
import sys

import pytest

from securevfl.engine import wire
from securevfl.engine.network import SERVER
from securevfl.engine.realtime.checkpoint_store import ROUNDS, CheckpointStore, _worth_keeping
from securevfl.engine.realtime.slot_file import SlotFile
from securevfl.errors import CheckpointError
from securevfl.runs.engines.ray import Driver
from tests.engine.realtime.damage import spoil_newest


@pytest.mark.parametrize(
    ("kept", "newest", "said"),
    [
        (
            {0: [0, 7, 8], 1: [], SERVER: [8]},
            9,
            "party 1 has none up to it; the newest of any is 8",
        ),
        ({0: [7], 1: [8], SERVER: [7, 8]}, 9, "no round is of all"),
        ({0: [], 1: [], SERVER: []}, 9, "history .* is at round 9"),
        ({0: [0, 40], 1: [0, 40], SERVER: [0, 40]}, 0, "is at round 0"),  # the history is lost
    ],
)
def test_work_that_cannot_be_taken_up_is_refused_and_not_deleted(kept, newest, said, tmp_path):
    driver = object.__new__(Driver)
    driver.folder = tmp_path
    with pytest.raises(CheckpointError, match=rf"{said}.*Nothing was changed"):
        driver._refuse_loss(kept, newest)


def test_a_run_that_had_hardly_begun_is_begun_anew(tmp_path):
    driver = object.__new__(Driver)
    driver.folder = tmp_path
    driver._refuse_loss({0: [0, 1], 1: [0], SERVER: []}, 0)


class Stand:
    """What a store asks of a party."""

    def __init__(self, round):
        self.round = round


def write(store, rounds):
    for round in rounds:
        store(Stand(round), lambda round=round: {"once": {"data": 7}, "round": round})


def test_the_newest_rounds_are_kept_and_ever_fewer_of_those_before(tmp_path):
    store = CheckpointStore(tmp_path)
    write(store, range(1001))
    steps = [*range(512, 1001, 64), *range(944, 1001, 8), *range(993, 1001)]
    assert store.rounds() == sorted({0, 512, *steps})
    assert len(store.rounds()) < 28


@pytest.mark.parametrize("lag", [0, 3, 9, 40, 63, 200, 480])
def test_parties_that_stand_some_rounds_apart_have_a_round_in_common(lag):
    one, other = (_worth_keeping(range(newest + 1)) for newest in (1000, 1003))
    known = [round for round in one & other if round <= 1000 - lag]
    assert 1000 - lag - max(known) <= max(8, lag)


def test_what_is_damaged_is_not_offered(tmp_path):
    store = CheckpointStore(tmp_path)
    write(store, range(5))
    assert spoil_newest(tmp_path) == 4
    assert store.whole() == [0, 1, 2, 3]
    assert store.read()["round"] == 3
    assert store.read(4) is None  # never another round than the one that is asked for
    assert store.read(2)["once"] == {"data": 7}


def test_what_is_written_ahead_comes_with_the_checkpoints_before_it(tmp_path):
    keeper = CheckpointStore(tmp_path, every=2)
    write(keeper, range(3))
    keeper.write_ahead(3, b"uploaded")  # whether or not a checkpoint is due
    again = CheckpointStore(tmp_path)
    assert again.read()["ahead"] == b"uploaded"
    write(keeper, [4])
    assert "ahead" not in again.read()  # a newer checkpoint has it
    keeper.forget(-1)
    assert not list(tmp_path.glob("*.svfl"))


def test_what_is_written_ahead_in_the_round_of_a_checkpoint_comes_with_it(tmp_path):
    """A party whose rounds do not move forgot by a crash what it had released."""
    keeper = CheckpointStore(tmp_path)
    write(keeper, [0])
    keeper.write_ahead(0, b"released")
    again = CheckpointStore(tmp_path)
    assert again.read()["ahead"] == b"released"
    again.write_ahead(0, b"released twice")  # it went on from there, and wrote no checkpoint since
    assert CheckpointStore(tmp_path).read(0)["ahead"] == b"released twice"
    write(again, [1])
    assert "ahead" not in again.read(1)
    assert again.read(0)["ahead"] == b"released twice"


HOLD = """
import sys, time
from pathlib import Path
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]))
store.claim()
print("held", flush=True)
time.sleep(60)
"""


def test_one_process_writes_and_the_next_waits_until_it_has_ended(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "held\n"
        store = CheckpointStore(tmp_path)
        with pytest.raises(CheckpointError, match=r"another process .* nothing was changed"):
            store.claim(patience=0.2)
        child.kill()
    store.claim(patience=5.0)


def test_a_damaged_number_of_incarnations_is_not_begun_anew(tmp_path):
    """A number that was used would be taken for the incarnation that had it."""
    store = CheckpointStore(tmp_path)
    assert [store.begin_incarnation() for _ in range(2)] == [0, 1]
    (tmp_path / "life").write_text("")
    with pytest.raises(CheckpointError, match="life is damaged: it holds no number"):
        store.begin_incarnation()


CONTENTS = [{}, [], 3, {"round": "x"}, {"round": 9}]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_whole_checkpoint_of_another_content_is_passed_over(tmp_path, content):
    SlotFile(tmp_path / ROUNDS).put(3, wire.encode(content))
    store = CheckpointStore(tmp_path)
    assert store.whole() == []
    assert store.read() is None


@pytest.mark.parametrize("content", [b"damaged", *CONTENTS])
def test_a_damaged_file_of_what_was_written_ahead_is_refused(tmp_path, content):
    """Passed over, it let a party forget what it had released, and release it again."""
    store = CheckpointStore(tmp_path)
    write(store, [1])
    if isinstance(content, bytes):
        (tmp_path / ROUNDS).write_bytes(content)
    else:
        SlotFile(tmp_path / ROUNDS).put_ahead(1, wire.encode(content))
    with pytest.raises(CheckpointError, match=r"rounds.svfl is damaged.*Nothing was changed"):
        store.read()
    with pytest.raises(CheckpointError, match=r"rounds.svfl is damaged"):
        store.refuse_to_begin_anew("client 0")


def test_counts_that_hold_for_all_attempts_forbid_to_begin_anew(tmp_path):
    store = CheckpointStore(tmp_path)
    store.refuse_to_begin_anew("client 0")
    store.write_ahead(1, b"uploaded")
    store.refuse_to_begin_anew("client 0")
    store.write_ahead(1, b"released", True)
    with pytest.raises(CheckpointError, match=r"client 0 has sent already .* add up the epsilons"):
        CheckpointStore(tmp_path).refuse_to_begin_anew("client 0")
    assert store._ahead(-1) == {"ahead": b"released"}
