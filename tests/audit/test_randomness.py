"""Where masks come from: the log, the operating system's source, forks, and what files may use."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import securevfl
from securevfl.audit.randomness import unexplained, watch
from securevfl.audit.recorded_runs import run_factory
from securevfl.audit.statistical import digest
from securevfl.audit.tapes import Tape
from securevfl.field import PrimeField, sampling
from securevfl.field.sampling import SeededSource
from securevfl.protocols.base.registry import get_protocol
from tests.audit.banned_randomness import banned_randomness

ROOT = Path(securevfl.__file__).parent
FIELD = PrimeField(2**61 - 1)


def run_of(protocol):
    features = [np.full((3, 2), n / 8) for n in range(4)]
    return run_factory(protocol, features, rounds=2, width=3).run()


def test_every_draw_of_a_run_comes_from_the_sampler_with_fresh_bytes():
    run_of(get_protocol("fedvs"))  # what a first import draws for itself is none of a run's bytes
    with watch() as log:
        recorded = run_of(get_protocol("fedvs"))
    assert list(unexplained(log, recorded.tapes.values())) == []
    assert all(call.secure and call.fresh == 32 for call in log.calls)
    assert {call.source for call in log.calls} == {"SystemSource()"}
    drawn = sum(draw.nbytes for tape in recorded.tapes.values() for draw in tape.draws)
    assert sum(call.nbytes for call in log.calls) == drawn


def test_a_result_explains_one_draw_only():
    with watch() as log:
        z = FIELD.random((3, 3))
    tape = Tape([z, z.copy()], [0, 1])
    assert list(unexplained(log, [tape])) == ["draw 1 of tape 0"]


def test_watching_ends():
    uniform, urandom = sampling.uniform, os.urandom
    with watch() as log:
        assert sampling.uniform is not uniform
    FIELD.random(4)
    assert log.calls == []
    assert (sampling.uniform, os.urandom) == (uniform, urandom)


class Replaced:
    """An operating system whose bytes are known: call number and flipped bits."""

    def __init__(self, flip=None):
        self.calls, self.flip = 0, flip

    def __call__(self, size):
        self.calls += 1
        drawn = bytearray((self.calls * 37 + i) % 256 for i in range(size))
        if self.flip is not None:
            drawn[self.flip // 8] ^= 1 << self.flip % 8
        return bytes(drawn)


def draws_with(monkeypatch, source):
    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", source)
        return run_of(get_protocol("fedvs")).tapes


def test_masks_are_a_function_of_the_operating_systems_bytes(monkeypatch):
    """With the source replaced nothing else moves the masks, and every draw asks anew."""
    source = Replaced()
    one = draws_with(monkeypatch, source)
    two = draws_with(monkeypatch, Replaced())
    draws = [draw for tape in one.values() for draw in tape.draws]
    keys = 4  # of masks: one for each of the N = 4 sets of T = 1 clients
    assert source.calls == len(draws) + keys
    for n, tape in one.items():
        assert digest(tape.draws) == digest(two[n].draws)


def test_every_bit_of_the_operating_systems_bytes_reaches_the_masks(monkeypatch):
    """A generator that folds its seed would give some of these keys the same masks."""
    seen = set()
    for flip in (None, *range(256)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "urandom", Replaced(flip))
            seen.add(digest([FIELD.random(8)]))
    assert len(seen) == 257


def test_a_forked_child_does_not_repeat_its_parents_masks():
    """Fork with the sampler warm: what the child draws is not what the parent draws next."""
    code = """
import os, sys, hashlib
from securevfl.field import PrimeField
F = PrimeField(2**31 - 1)
F.random(8)
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, F.random(8).tobytes())
    os._exit(0)
os.wait()
print(os.read(read, 32) == F.random(8).tobytes())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# Who may use what, and why. Masks are made in field/sampling.py alone.
ALLOWED = {
    "field/sampling.py": {"os.urandom"},
    "engine/streams.py": {"os.urandom"},  # a party's own entropy, for its secret streams
    "engine/realtime/assignment.py": {"from secrets.token_hex"},  # the name of a begun run
    "engine/realtime/checkpoint_store.py": {"import secrets"},  # likewise
    "data/alignment/oprf.py": {"os.urandom"},  # a member's secret bits; its scalars are OpenSSL's
    "audit/randomness.py": {"os.urandom", "import random"},  # watches it, and what it gives there
    "audit/equal_sums.py": {"np.random.default_rng"},  # tables of a theorem's instance
    "verified/trace.py": {"np.random.default_rng"},  # numbers of inputs that are given by shape
    "verified/changes.py": {"np.random.default_rng"},  # one record, changed
    "verified/prove.py": {"np.random.default_rng"},  # other inputs, for a refutation
    "verified/traced/proofs.py": {"np.random.default_rng"},  # a small table
    "verified/parties.py": {"os.urandom"},  # keys of protected values
    "writing.py": {"import secrets"},  # names of files that stand beside what they replace
    "audit/games/guessing.py": {"import secrets"},  # coins of the games
    # Initial weights, in a fork of torch's generator.
    "models/weights.py": {"torch.default_generator.manual_seed"},
    "engine/cluster/ray_connection.py": {"import secrets"},  # the token of a cluster
    "runs/assembly.py": {"import secrets"},  # the name of a run, bound into its seals
    "runs/alignment.py": {"import secrets"},  # likewise
    "runs/organisations/identities.py": {"import secrets"},  # likewise
    "runs/engines/own_tables.py": {"import secrets"},  # likewise
    "runs/prediction.py": {"import secrets"},  # likewise
    "report/live.py": {"import secrets"},  # the path of a page, which is no secret of a run
    "testing/inspection.py": {"import random", "np.random.get_state"},  # looks at their state
}


def test_no_file_makes_randomness_of_its_own():
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        found = set(banned_randomness(path.read_text()))
        assert found <= ALLOWED.get(name, set()), f"{name} uses {found}"


@pytest.mark.parametrize(
    "text",
    [
        "import random",
        "from random import choice",
        "import secrets as s",
        "import os\nx = os.urandom(4)",
        "from os import urandom",
        "import numpy as np\nx = np.random.default_rng(0)",
        "import numpy\nx = numpy.random.rand(3)",
        "import torch\nx = torch.randn(3)",
        "import torch\ntorch.default_generator.manual_seed(3)",
        "from numpy.random import default_rng",
    ],
)
def test_the_ban_is_effective(text):
    assert banned_randomness(text)


def test_every_use_is_named_by_its_whole_name():
    text = "import random; import numpy as np; np.random.seed(1)"
    assert banned_randomness(text) == ["import random", "np.random.seed"]


def test_streams_are_not_banned():
    assert (
        banned_randomness("import numpy as np\ng = np.random.Generator(np.random.Philox(1))") == []
    )


def test_a_seeded_source_says_that_it_is_not_secure():
    with watch() as log:
        FIELD.random(3, SeededSource(1))
    assert [(call.secure, call.fresh) for call in log.calls] == [(False, 0)]
