"""Where masks come from: the log, the operating system's source, forks, and what files may use."""

import os
import secrets
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import ciphers

import securevfl
from securevfl.audit.beside.known_answers import expanded
from securevfl.audit.following.sources import altered
from securevfl.audit.randomness import uneven, unexplained, unused, watch
from securevfl.audit.recorded_runs import run_factory
from securevfl.audit.statistical import digest, repeats
from securevfl.audit.tapes import Tape
from securevfl.field import LagrangeCode, PrimeField, sampling
from securevfl.field.error_correction import projections
from securevfl.field.sampling import SeededSource
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaky import leaky
from tests.audit.banned_randomness import banned_randomness

TRUE_CIPHER = ciphers.Cipher
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
    assert log.insecure == []
    assert all(call.source == "SystemSource()" and call.fresh == 32 for call in log.calls)
    drawn = sum(draw.nbytes for tape in recorded.tapes.values() for draw in tape.draws)
    assert sum(call.nbytes for call in log.calls) == drawn


@pytest.mark.parametrize("name", ["64-bit seed", "short seed", "constant seed", "small masks"])
def test_masks_of_another_origin_are_named(name):
    with watch() as log:
        recorded = run_of(leaky(name))
    assert len(list(unexplained(log, recorded.tapes.values()))) == sum(
        len(tape.draws) for tape in recorded.tapes.values()
    )
    assert bool(log.insecure) == ("seed" in name)


@pytest.mark.parametrize("again", [False, True])
def test_draws_that_are_repeated_until_they_please_are_of_another_number(again):
    def until_even():
        key = os.urandom(32)
        while again and key[0] % 8:
            key = os.urandom(32)

    logs = []
    for _ in range(2):
        with watch() as log:
            for _ in range(40):
                until_even()
        logs.append(log)
    assert ("drawn again" in uneven(*logs)) == again


def test_numbers_that_are_too_large_are_drawn_again_by_everybody():
    logs = []
    for below in (2**256 - 1, 2**255 + 1):  # of which half are rejected
        with watch() as log:
            for _ in range(40):
                secrets.randbelow(below)
        logs.append(log)
    assert len(logs[1].keys) > len(logs[0].keys)
    assert uneven(*logs) == ""


def test_a_key_of_fewer_bytes_than_were_asked_for_explains_no_draw(monkeypatch):
    def short():
        return sampling.Keystream(os.urandom(32)[:1] * 32, sampling.has_aes_unit())

    monkeypatch.setitem(vars(sampling.SYSTEM), "keystream", short)
    with watch() as log:
        made = FIELD.random((3, 3))
    assert log.insecure == []  # 32 fresh bytes were asked for
    assert list(unexplained(log, [Tape([made], [0])])) == ["draw 0 of tape 0"]


def test_a_long_draw_that_repeats_itself_is_not_what_its_key_gives(monkeypatch):
    fill = sampling.fill_uniform

    def repeated(p, out, stream):
        fill(p, out, stream)
        if out.size > 300:
            out[out.size // 2 :] = out[: out.size - out.size // 2]

    monkeypatch.setattr(sampling, "fill_uniform", repeated)
    with watch() as log:
        tapes = [Tape([FIELD.random(size)], [0]) for size in (300, 301)]
    assert list(unexplained(log, tapes)) == ["draw 0 of tape 1"]


def test_a_result_explains_one_draw_only():
    with watch() as log:
        z = FIELD.random((3, 3))
    tape = Tape([z, z.copy()], [0, 1])
    assert list(unexplained(log, [tape])) == ["draw 1 of tape 0"]


@pytest.mark.parametrize("p", [2**50 - 2**14 + 1, 2**61 - 1])
def test_weights_of_decoding_are_no_masks_that_were_thrown_away(p):
    """With two projections, as at 50 bits, the weights of a row are as large as a mask may be."""
    code = LagrangeCode(PrimeField(p), parties=7, segments=1, privacy=1)
    shares = code.encode(code.field.random((1, 6)), masks=code.field.random((1, 6)))
    shares[3] = shares[4]
    with watch() as log:
        kept = code.field.random((projections(code.field), 6))
        code.decode_with_errors(shares, range(7), degree=2)
    assert len(log.calls) > 1
    assert kept.nbytes in [call.nbytes for call in log.calls[1:]]
    assert unused(log, [Tape([kept], [0])]) == 0
    with watch() as more:
        code.field.random(kept.shape)
    log.calls += more.calls
    assert unused(log, [Tape([kept], [0])]) == 1


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


def starts(name, count):
    """Digests of the first masks of fresh processes, two at a time."""
    code = f"from securevfl.testing.leaky import first_masks; print(first_masks({name!r}))"
    command = [sys.executable, "-c", code]
    found = []
    for _ in range(count // 2):
        pair = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        found += [process.communicate(timeout=60)[0].strip() for process in pair]
    return found


@pytest.mark.parametrize(("name", "count"), [("constant seed", 2), ("short seed", 6)])
def test_fresh_processes_repeat_the_masks_of_short_seeds(name, count):
    """Six starts of a 2-bit seed repeat surely: there are four seeds."""
    assert repeats(starts(name, count), 64, 2**31 - 1).rejected


def test_fresh_processes_do_not_repeat_masks():
    assert not repeats(starts(None, 4), 64, 2**31 - 1).rejected


# Who may use what, and why. Masks are made in field/sampling.py alone.
ALLOWED = {
    "field/sampling.py": {"os.urandom"},
    "engine/streams.py": {"os.urandom"},  # a party's own entropy, for its secret streams
    "engine/realtime/assignment.py": {"from secrets.token_hex"},  # the name of a begun run
    "engine/realtime/checkpoint_store.py": {"import secrets"},  # likewise
    "data/alignment/psi.py": {"os.urandom"},  # secret order of a set; its scalars are OpenSSL's
    "audit/randomness.py": {"os.urandom", "import random"},  # watches it, and what it gives there
    "testing/leaks/disguises.py": {"os.urandom"},  # stands for it, and passes it on
    "audit/beside/known_answers.py": {"os.urandom"},  # keys on which the sampler is compared
    "audit/links/frames.py": {"os.urandom"},  # watches it; texts of payloads that are looked for
    "audit/noise/normals.py": {"os.urandom"},  # keys on which noise is compared
    "audit/links/sealed_runs.py": {"os.urandom"},  # such texts
    "audit/games/guessing.py": {"import secrets"},  # coins of the games
    "field/first_calls.py": {"np.random.default_rng"},  # inputs of a warm-up
    "bench/field_cases.py": {"np.random.default_rng"},  # inputs of benchmarks
    # Initial weights, in a fork of torch's generator.
    "models/weights.py": {"torch.default_generator.manual_seed"},
    "engine/cluster/ray_connection.py": {"import secrets"},  # the token of a cluster
    "runs/assembly.py": {"import secrets"},  # the name of a run, bound into its seals
    "runs/alignment.py": {"import secrets"},  # likewise
    "runs/identities.py": {"import secrets"},  # likewise
    "runs/engines/own_tables.py": {"import secrets"},  # likewise
    "runs/prediction.py": {"import secrets"},  # likewise
    "testing/leaky.py": {"os.urandom"},  # planted short seeds
    "testing/leaks/fedvs_masks.py": {"os.urandom"},  # the same
    "testing/leaks/choices.py": {"os.urandom"},  # a planted key for all sets
    "audit/beside/process.py": {  # looks at their state, and puts it back
        *("import random", "np.random.get_state", "np.random.seed", "np.random.set_state"),
    },
    "report/live.py": {"import secrets"},  # the path of a page, which is no secret of a run
    "testing/leaks/beginnings.py": {"os.urandom"},  # replaces it by bytes that everybody knows
    "testing/leaks/harmless_changes.py": {"os.urandom"},  # waits that follow from nothing
    "testing/leaks/outsider/prepared_tables.py": {"os.urandom"},  # planted short keys
    "testing/leaks/outsider/swapped_parts.py": {"os.urandom"},  # likewise
    "testing/leaks/outsider/unwatched.py": {"np.random.get_state", "np.random.seed"},  # a channel
    "testing/leaks/third_party/more_surroundings.py": {"import random"},  # likewise
    "testing/leaks/third_party/watched.py": {"os.urandom"},  # looks whether it is replaced
    "testing/inspection.py": {"import random", "np.random.get_state"},  # looks at their state
}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: p.name)
def test_no_file_makes_randomness_of_its_own(path):
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
    assert [call.secure for call in log.calls] == [False]
    assert log.insecure == log.calls


def rotated(word, by):
    return ((word << by) | (word >> (32 - by))) & 0xFFFFFFFF


def chacha20(key):
    """The first block under a key from a counter of zeros (RFC 8439, section 2.3), by Python."""
    state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), 0, 0, 0, 0]
    x = list(state)
    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for a, b, c, d in (columns + diagonals) * 10:
        for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[first] = (x[first] + x[second]) & 0xFFFFFFFF
            x[third] = rotated(x[third] ^ x[first], by)
    return struct.pack(
        "<16I", *((one + two) & 0xFFFFFFFF for one, two in zip(x, state, strict=True))
    )


def test_the_stream_cipher_is_the_published_one():
    for key in (bytes(32), bytes(range(32)), os.urandom(32)):
        assert expanded(key, 64, aes=False) == chacha20(key)


@pytest.mark.parametrize("short", ["AES", "ChaCha20"])
def test_ciphers_that_use_one_byte_of_a_key_are_found(monkeypatch, short):
    def cipher(algorithm, mode):
        if type(algorithm).__name__ == short:
            key = algorithm.key[:1] * 32
            nonce = () if short == "AES" else (algorithm.nonce,)
            algorithm = type(algorithm)(key, *nonce)
        return TRUE_CIPHER(algorithm, mode)

    monkeypatch.setattr(ciphers, "Cipher", cipher)
    with pytest.raises(RuntimeError, match=f"another {short}.* than is published"):
        expanded(bytes(range(32)), 5, aes=True)
    with watch(), pytest.raises(RuntimeError, match="replaced it"):
        FIELD.random((3,))
    assert "cryptography.hazmat.primitives.ciphers.Cipher" in altered()
