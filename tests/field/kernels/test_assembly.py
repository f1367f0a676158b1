"""What the compiler made of the innermost loops.

LLVM likes to rewrite a broadcast that is shifted into shifts in general registers, or products of
32 bits into products of 64, which costs a third of the speed and breaks no result. These tests see
it with the next version.
"""

import re

import numba
import pytest

from securevfl.field.kernels import cpu, vector

TIER = {True: "avx512", False: "avx2"}
# Multiplications, loads that broadcast: of one term of one tile.
EXPECTED = {
    ("short", True): (24, 6),
    ("mersenne", True): (24, 6),
    ("long", True): (24, 24),
    ("short", False): (8, 2),
    ("mersenne", False): (8, 2),
    ("long", False): (9, 9),
}


def innermost_loops(assembly):
    """Return the instructions of each loop that holds no other loop: label to jump back."""
    lines = [line.split("#")[0].strip() for line in assembly.splitlines()]
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    spans = []
    for i, line in enumerate(lines):
        target = line.split()[-1] if line.startswith("j") else ""
        if labels.get(target, i + 1) <= i:
            spans.append((labels[target], i))
    spans = [s for s in spans if not any(s != o and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[line for line in lines[a + 1 : b + 1] if line[:1].isalpha()] for a, b in spans]


def hot_loop(function, *words):
    """Return the innermost loop of a kernel with most of the first instruction, then the next."""
    compiled = numba.njit(nogil=True, boundscheck=False)(function.py_func)
    compiled.compile((numba.int64,))
    (assembly,) = compiled.inspect_asm().values()
    return max(innermost_loops(assembly), key=lambda loop: [_count(loop, w) for w in words])


def _count(loop, word):
    return sum(word in line for line in loop)


def test_loops_are_found():
    loops = innermost_loops("f:\na:\n\tnop\nb:\n\tadd %eax, %eax # b\n\tjne b\n\tjl a\n\tret")
    assert loops == [["add %eax, %eax", "jne b"]]


@pytest.mark.parametrize(("ring", "wide"), EXPECTED)
def test_the_loop_of_a_product_stays_in_the_vector_unit(ring, wide):
    if TIER[wide] not in cpu.available():
        pytest.skip(f"this machine has no {TIER[wide]}")
    loop = hot_loop(vector.FORMS[ring, wide].multiply, "vpmuldq", "broadcast")
    text = "\n".join(loop)
    products, broadcasts = EXPECTED[ring, wide]
    assert text.count("vpmuldq") == products, text
    assert len(re.findall(r"v(?:p?broadcast)\w+\s+-?\d*\(", text)) == broadcasts, text
    assert "vpmullq" not in text, text
    assert not re.search(r"vmov[dq]\s+%[er]", text), text
    assert not re.search(r"vp?broadcast\w+\s+%", text), text
    assert len(re.findall(r"\(%r[sb]p\)", text)) <= 2, text
