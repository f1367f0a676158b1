"""Write the vectors of this folder with galois, which shares no code with securevfl.

Run from the root of the repository: ``python tests/vectors/field/generate.py``. The numbers are
random by a fixed NumPy seed; what they must give is computed by galois' own arithmetic and
Lagrange interpolation. Refusals are written by hand.
"""

import json
from pathlib import Path

import galois
import numpy as np

HERE = Path(__file__).parent
MODULI = (5, 2**26 - 5, 2013265921, 2**31 - 1, 2**61 - 1)
LATER = (2**50 - 2**14 + 1,)  # drawn after the others, whose numbers stay
CODES = ((8, 2, 1), (7, 1, 3), (16, 3, 4))


def draw(rng, G, *shape):
    """Return uniform elements with 0 and p - 1 among them."""
    size = int(np.prod(shape))
    values = [int(v) for v in rng.integers(0, G.order, size, dtype=np.uint64)]
    values[: min(2, size)] = [0, G.order - 1][: min(2, size)]
    return G(np.array(values, dtype=object).reshape(shape))


def plain(array):
    return np.asarray(array).astype(object).tolist()


def arithmetic(rng, p):
    G = galois.GF(p)
    a, b = draw(rng, G, 6), draw(rng, G, 6)
    b[b == 0] = 1
    left, right = draw(rng, G, 3, 4), draw(rng, G, 4, 2)
    return {
        "modulus": p,
        "a": plain(a),
        "b": plain(b),
        "add": plain(a + b),
        "subtract": plain(a - b),
        "multiply": plain(a * b),
        "divide": plain(a / b),
        "power_5": plain(a**5),
        "left": plain(left),
        "right": plain(right),
        "matmul": plain(left @ right),
    }


def coding(rng, p, N, K, T):
    G = galois.GF(p)
    betas, alphas = range(1, K + T + 1), range(K + T + 1, K + T + N + 1)
    segments, masks = draw(rng, G, K, 4), draw(rng, G, T, 4)
    columns = np.concatenate([segments, masks]).T
    polynomials = [galois.lagrange_poly(G(list(betas)), G(c)) for c in columns]
    shares = G([[int(f(a)) for f in polynomials] for a in alphas])
    return {
        "modulus": p,
        "parties": N,
        "segments": K,
        "privacy": T,
        "data": plain(segments),
        "masks": plain(masks),
        "shares": plain(shares),
        "squares": plain(shares * shares),
        "decoded_squares": plain(segments * segments),
    }


# 3215031751 is a strong pseudoprime to the bases 2, 3, 5 and 7; 2^62 + 135 the first prime beyond
# 2^62.
MODULI_REFUSED = [9, 23**2, 2**31, 2**26 - 4, 2, 1, 0, -5, -7]
MODULI_REFUSED += [2**61 + 1, 3215031751, 2**62 + 135, 2**89 - 1]
REFUSED = {
    "moduli": MODULI_REFUSED,
    "codes": [
        {"modulus": 2**31 - 1, "parties": 8, "segments": 4, "privacy": 1, "why": "R > N"},
        {"modulus": 2**31 - 1, "parties": 4, "segments": 1, "privacy": 4, "why": "T >= N"},
        {"modulus": 2**31 - 1, "parties": 4, "segments": 1, "privacy": 0, "why": "no mask"},
        {"modulus": 7, "parties": 5, "segments": 1, "privacy": 1, "why": "field too small"},
    ],
}


def main():
    rng = np.random.default_rng(20240229)
    vectors = {
        "origin": f"galois {galois.__version__}, by generate.py in this folder",
        "arithmetic": [arithmetic(rng, p) for p in MODULI],
        "coding": [coding(rng, p, *code) for p in MODULI[1:] for code in CODES],
        "refused": REFUSED,
    }
    vectors["arithmetic"] += [arithmetic(rng, p) for p in LATER]
    vectors["coding"] += [coding(rng, p, *code) for p in LATER for code in CODES]
    (HERE / "vectors.json").write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
