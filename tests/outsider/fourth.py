"""Programs by a fourth referee, each of an author who errs, and sound ones beside them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.verified import SERVER, World, concatenate
from tests.outsider.second import Program
from tests.outsider.third import P, _kept, begin

LEAKS: list[Program] = []
SOUND: list[Program] = []


def leak(coalition: set[int], name: str) -> Any:
    """A decorator: a program that leaks to a coalition by the message or output `name`."""
    return _kept(LEAKS, coalition, name)


def sound(coalition: set[int], name: str = "") -> Any:
    """A decorator: a program that does not leak to a coalition; `name` is its verdict, if DP."""
    return _kept(SOUND, coalition, name)


def total(w: World, *values: Any, name: str = "sum") -> None:
    """Declare the sum of inputs for the server."""
    w.output(name, sum(map(w.spec, values)), to=[SERVER])


# -- masks ------------------------------------------------------------------------------------
@leak({SERVER}, "up")
def only_first_column_masked() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    zero = a.uniform(4, 1) * 0
    a.send(SERVER, "up", x + concatenate([a.uniform(4, 1), zero], axis=1))
    return w


@leak({SERVER}, "up")
def one_row_of_mask_for_all_rows() -> World:
    """NumPy would broadcast (1, 2) to (4, 2)."""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + np.ones((4, 1), int) @ a.uniform(1, 2))
    return w


@leak({SERVER}, "up")
def mask_of_too_few_tapes() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    vandermonde = np.array([[1, t, t * t] for t in (1, 2, 3, 4)])
    a.send(SERVER, "up", x + vandermonde @ a.uniform(3, 2))
    return w


@leak({SERVER}, "up")
def mixing_is_singular_modulo_p() -> World:
    """The determinant of the mixing matrix is p: invertible over the integers alone."""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + a.uniform(4, 2) @ np.array([[1, 2], [3, P + 6]], dtype=object))
    return w


@leak({SERVER}, "up")
def mask_scaled_by_modulus() -> World:
    """A mask is scaled like the quantised value, here by 2^31 - 1."""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + a.uniform(4, 2) * P)
    return w


@leak({SERVER}, "bias")
def one_label_for_weights_and_bias() -> World:
    w, (a, b), _s, (x, y) = begin(2)
    k = a.key()
    got = a.send(1, "seed", k)
    bias = w.secret(0, "bias", (4, 2))
    a.send(SERVER, "up", x + a.prf(k, ("round", 1), 4, 2))
    a.send(SERVER, "bias", bias + a.prf(k, ("round", 1), 4, 2))
    b.send(SERVER, "up", y - b.prf(got, ("round", 1), 4, 2))
    return w


@leak({SERVER}, "event seed")
def seed_in_the_history() -> World:
    """The seed is recorded, so that the experiment can be repeated."""
    w, (a, _b), _s, (x, _y) = begin(2)
    k = a.key()
    a.record("seed", k)
    a.send(SERVER, "up", x + a.prf(k, 1, 4, 2))
    return w


@leak({SERVER}, "late")
def opened_pair_key_is_used_in_the_next_round() -> World:
    """Client 0 is late in round 1, its pair key is opened, and hides its upload of round 2."""
    w, (a, b), _s, (x, y) = begin(2)
    k = a.key()
    got = a.send(1, "seed", k)
    b.send(SERVER, "up", y - b.prf(got, 1, 4, 2))
    b.send(SERVER, "opened key", got)
    w.output("only one", w.spec(y), to=[SERVER], alone=True)
    w.round = 2
    a.send(SERVER, "late", x + a.prf(k, 2, 4, 2))
    return w


@leak({SERVER}, "retry")
def retry_of_other_rows_with_the_kept_mask() -> World:
    w, (a, b), _s, (x, y) = begin(2)
    later = w.secret(1, "columns of the next batch", (4, 2))
    m = a.uniform(4, 2)
    got = a.send(1, "mask", m)
    a.send(SERVER, "up", x + m)
    b.send(SERVER, "up", y - got)
    b.send(SERVER, "retry", later - got)
    total(w, x, y)
    return w


@sound({SERVER})
def retry_with_a_fresh_mask() -> World:
    w, (a, b), _s, (x, y) = begin(2)
    for kind in ("up", "retry"):
        m = a.uniform(4, 2)
        b.send(SERVER, kind, y - a.send(1, "mask", m))
        a.send(SERVER, kind, x + m)
    total(w, x, y)
    return w


@leak({SERVER}, "up")
def mask_is_transposed_once() -> World:
    """The server has y + x^T, and not the sum."""
    w = World(P)
    x, y = (w.secret(n, "columns", (2, 2)) for n in (0, 1))
    a, b = w.party(0), w.party(1)
    m = a.uniform(2, 2)
    b.send(SERVER, "up", y - a.send(1, "mask", m).T)
    a.send(SERVER, "up", x + m)
    total(w, x, y)
    return w


@sound({SERVER}, "NOT PROVED")
def low_bits_of_a_masked_value() -> World:
    """The search moves no tape inside a function: it is incomplete here."""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", (x + a.uniform(4, 2)).map(np.bitwise_and, 255))
    return w


@leak({SERVER}, "up")
def mask_as_float() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    real, mask = (v.map(np.float32, real=True, dtype=np.float32) for v in (x, a.uniform(4, 2)))
    a.send(SERVER, "up", real.map(np.add, mask))
    return w


# -- what goes beside the masked value ----------------------------------------------------------
@leak({SERVER}, "order")
def order_of_rows() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "order", x[:, 0].map(np.argsort))
    a.send(SERVER, "up", x + a.uniform(4, 2))
    return w


def largest(x: Any) -> Any:
    return np.argsort(np.abs(x).ravel())[-2:]


@leak({SERVER}, "places")
def places_of_a_sparse_gradient() -> World:
    """Top-2 sparsification: values are masked, their places are not."""
    w, (a, _b), _s, _ = begin(2)
    gradient = w.secret(0, "gradient", (4, 2), real=True)
    a.send(SERVER, "places", gradient.map(largest, shape=(2,), dtype=np.int64))
    return w


def hashed(x: Any) -> Any:
    return np.frombuffer(hashlib.sha256(x.tobytes()).digest(), np.uint8)


@leak({SERVER}, "check sum")
def hash_for_integrity() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + a.uniform(4, 2))
    a.send(SERVER, "check sum", x.map(hashed, shape=(32,), real=True, dtype=np.uint8))
    return w


@leak({SERVER}, "tag")
def keyed_hash_whose_key_the_server_has() -> World:
    """Identifiers are matched by HMAC, and the server made the key."""
    w, (a, _b), s, (x, _y) = begin(2)
    k = s.send(0, "key", s.key())
    a.send(SERVER, "tag", a.tag(k, "id", of=[x]))
    return w


@sound({SERVER})
def keyed_hash_of_two_clients() -> World:
    w, (a, b), _s, (x, y) = begin(2)
    k = a.key()
    got = a.send(1, "key", k)
    a.send(SERVER, "tag", a.tag(k, ("id", 0), of=[x]))
    b.send(SERVER, "tag", b.tag(got, ("id", 1), of=[y]))
    return w


@leak({1}, "event loss")
def loss_for_everybody() -> World:
    w, (a, _b), s, (x, _y) = begin(2)
    got = a.send(SERVER, "up", x)
    s.record("loss", got.map(np.sign)[0, 0])
    return w


@leak({1}, "prediction")
def predictions_for_all_clients() -> World:
    w, (a, b), s, (x, y) = begin(2)
    m = a.uniform(4, 2)
    up = a.send(SERVER, "up", x + m) + b.send(SERVER, "up", y - a.send(1, "mask", m))
    total(w, x, y)
    s.send(1, "prediction", up.map(np.sign))
    return w


@leak({SERVER}, "backup")
def backup_of_the_state_at_the_server() -> World:
    """A client keeps its checkpoint, which holds the mask, at the server."""
    w, (a, b), _s, (x, y) = begin(2)
    m = a.uniform(4, 2)
    a.send(SERVER, "backup", {"round": 1, "mask": m})
    b.send(SERVER, "up", y - a.send(1, "mask", m))
    a.send(SERVER, "up", x + m)
    total(w, x, y)
    return w


@leak({SERVER}, "again")
def message_of_an_earlier_round_comes_late() -> World:
    """Round 1 was given up without client 2; its upload comes after the masks were opened."""
    w, (a, b, c), _s, (x, y, z) = begin(3)
    k = b.key()
    got = b.send(2, "seed", k)
    m = a.uniform(4, 2)
    a.send(SERVER, "up", x + m)
    b.send(SERVER, "up", y - a.send(1, "mask", m) + b.prf(k, 1, 4, 2))
    b.send(SERVER, "opened mask", b.prf(k, 1, 4, 2))
    total(w, x, y)
    c.send(SERVER, "again", z - c.prf(got, 1, 4, 2))
    return w


# -- sharing ------------------------------------------------------------------------------------
@leak({SERVER, 2}, "share")
def threshold_of_shares_is_the_coalition() -> World:
    """Two shares determine the key, and the server with one client has two."""
    w, (a, _b, _c), _s, (x, *_) = begin(3)
    k = a.key()
    shares = a.split_key(k, 2, [1, 2, 3])
    for point, to in zip(shares, (1, 2, SERVER), strict=True):
        a.send(to, "share", shares[point])
    a.send(SERVER, "up", x + a.prf(k, 1, 4, 2))
    return w


@sound({SERVER, 2})
def threshold_of_shares_is_above_the_coalition() -> World:
    w, (a, _b, _c), _s, (x, *_) = begin(3)
    k = a.key()
    shares = a.split_key(k, 3, [1, 2, 3])
    for point, to in zip(shares, (1, 2, SERVER), strict=True):
        a.send(to, "share", shares[point])
    a.send(SERVER, "up", x + a.prf(k, 1, 4, 2))
    return w


@leak({1}, "sum")
def ciphertext_sum_of_one_summand() -> World:
    """The others were late, so the holder of the key opens one client's value."""
    w, (_a, b, c), s, (_x, _y, z) = begin(3)
    up = c.send(SERVER, "up", c.encrypt(z, 1))
    b.decrypt(s.send(1, "sum", up))
    return w


@sound({1})
def ciphertext_sum_with_a_mask_of_the_server() -> World:
    """The holder opens a masked sum, and sends it back."""
    w, (a, b, c), s, (x, _y, z) = begin(3)
    r = s.uniform(4, 2)
    ups = [p.send(SERVER, "up", p.encrypt(v, 1)) for p, v in ((a, x), (c, z))]
    opened = b.decrypt(s.send(1, "sum", ups[0] + ups[1] + s.encrypt(r, 1)))
    b.send(SERVER, "opened", opened)
    return w


@sound({0})
def product_of_two_by_a_dealt_triple_and_masks() -> World:
    """Each opened difference is uniform, the triple's third part is a tape of the dealer."""
    w, (a, b), s, (x, y) = begin(2)
    u, v, r = s.uniform(4, 2), s.uniform(4, 2), s.uniform(4, 2)
    u0 = s.send(0, "u", u)
    v1, c1 = s.send(1, "v", v), s.send(1, "c", u * v - r)
    s.send(0, "r", r)
    d = a.send(1, "d", x - u0)
    b.send(0, "e", y - v1)
    mask = b.uniform(4, 2)
    b.send(0, "z", d * y + c1 + mask)
    return w


# -- outputs ------------------------------------------------------------------------------------
@leak({SERVER}, "sum 2")
def three_sums_of_pairs() -> World:
    w, _, _s, (x, y, z) = begin(3)
    for k, (one, other) in enumerate(((x, y), (y, z), (x, z))):
        total(w, one, other, name=f"sum {k}")
    return w


@leak({SERVER}, "mean")
def sum_and_weighted_mean() -> World:
    w, _, _s, (x, y) = begin(2)
    total(w, x, y)
    w.output("mean", w.spec(x) * 3 + w.spec(y) * 5, to=[SERVER])
    return w


def joined(one: Any, other: Any) -> Any:
    return np.concatenate([one, other], axis=1)


@leak({SERVER}, "up")
def joint_embedding_is_a_concatenation() -> World:
    """What is declared as the joint embedding has each party's columns side by side."""
    w, (a, b), _s, _ = begin(2)
    x, y = (w.secret(n, "embedding", (4, 2), real=True) for n in (0, 1))
    a.send(SERVER, "up", x)
    b.send(SERVER, "up", y)
    w.output("joint", w.spec(x).map(joined, w.spec(y), shape=(4, 4)), to=[SERVER])
    return w


def metrics(one: Any, other: Any) -> Any:
    return np.array([(one + other).mean(), one.max(), other.max()])


@leak({SERVER}, "metrics")
def metrics_of_each_party_beside_a_joint_one() -> World:
    w, (a, b), _s, _ = begin(2)
    x, y = (w.secret(n, "embedding", (4, 2), real=True) for n in (0, 1))
    got = a.send(1, "x", x)
    w.output("x", w.spec(x), to=[1], alone=True)
    b.send(SERVER, "metrics", got.map(metrics, y, shape=(3,)))
    w.output("metrics", w.spec(x).map(metrics, w.spec(y), shape=(3,)), to=[SERVER])
    return w


@sound({SERVER})
def largest_embedding_of_two() -> World:
    """Each entry is one party's, and whose depends on both."""
    w, *_ = begin(2)
    x, y = (w.secret(n, "embedding", (4, 2), real=True) for n in (0, 1))
    w.output("largest", w.spec(x).map(np.maximum, w.spec(y)), to=[SERVER])
    return w


# -- noise --------------------------------------------------------------------------------------
def rows(w: World, shape: tuple[int, ...] = (4, 2), owner: int = 0) -> Any:
    return w.secret(owner, "columns", shape, real=True)


def spread(x: Any) -> Any:
    return np.stack([x, 2 * x, 3 * x], axis=2)


@leak({SERVER}, "clip")
def rows_of_three_dimensions() -> World:
    """A record is a matrix, and the norm is bounded of each of its columns."""
    w, (a, _b), _s, _ = begin(2)
    v = rows(w).map(spread, shape=(4, 2, 3))
    a.send(SERVER, "up", a.gaussian(v.clip(1.0), 2.0))
    return w


def centred(x: Any) -> Any:
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3)


@leak({SERVER}, "centred")
def batch_normalisation_before_clipping() -> World:
    w, (a, _b), _s, _ = begin(2)
    a.send(SERVER, "up", a.gaussian(rows(w).map(centred).clip(1.0), 2.0))
    return w


def twice(x: Any) -> Any:
    return np.concatenate([x, x])


@leak({SERVER}, "twice")
def a_record_is_in_two_rows() -> World:
    """Oversampling: a record is in two rows of one release, and is charged once."""
    w, (a, _b), _s, _ = begin(2)
    a.send(SERVER, "up", a.gaussian(rows(w).map(twice, shape=(8, 2)).clip(1.0), 2.0))
    return w


@sound({SERVER}, "DP")
def a_record_in_two_rows_is_charged_twice() -> World:
    w, (a, _b), _s, _ = begin(2)
    numbers = np.arange(8) % 4
    v = rows(w).map(twice, shape=(8, 2)).clip(1.0)
    a.send(SERVER, "up", a.gaussian(v, 2.0, rows=numbers))
    return w


def chosen(x: Any, places: Any) -> Any:
    return x[places]


@leak({SERVER}, "chosen")
def records_counted_from_one() -> World:
    """Record 0 has the number -1, which is none, so that its two releases are not charged."""
    w, (a, _b), _s, _ = begin(2)
    v = rows(w)
    for batch in (np.array([0, 2]), np.array([0, 1])):
        clipped = v.map(chosen, batch, shape=(2, 2)).clip(1.0)
        a.send(SERVER, "up", a.gaussian(clipped, 2.0, rows=batch - 1))
    return w


@sound({SERVER}, "DP")
def records_of_a_batch() -> World:
    w, (a, _b), _s, _ = begin(2)
    v = rows(w)
    for batch in (np.array([0, 2]), np.array([1, 2])):
        clipped = v.map(chosen, batch, shape=(2, 2)).clip(1.0)
        a.send(SERVER, "up", a.gaussian(clipped, 2.0, rows=batch))
    return w


@sound({SERVER}, "DP")
def mean_of_all_records_is_one_row() -> World:
    """A sum over records, clipped as one row, changes by at most 2 C."""
    w, (a, _b), _s, _ = begin(2)
    v = rows(w).map(np.mean, 0, None, None, True, shape=(1, 2)).clip(1.0)
    a.send(SERVER, "up", a.gaussian(v, 2.0))
    return w


@leak({SERVER}, "up")
def scale_of_the_rows_is_told() -> World:
    """The largest norm is sent in the clear, for the server to undo the clipping."""
    w, (a, _b), _s, _ = begin(2)
    v = rows(w)
    a.send(SERVER, "up", a.gaussian(v.clip(1.0), 2.0))
    a.send(SERVER, "up", v.map(np.max, shape=()))
    return w


@leak({0}, "event positives")
def share_of_positives_beside_randomised_labels() -> World:
    w = World(P)
    s = w.party(SERVER)
    labels = w.secret(SERVER, "labels", np.arange(8) % 2, real=True)
    s.send(0, "labels", s.randomised(labels, 2, 1.0))
    s.record("positives", labels.map(np.sum, shape=()))
    return w


@leak({0}, "labels from 0 to 3")
def randomised_labels_are_of_few_classes() -> World:
    """Labels of 0 to 3 are randomised among two classes."""
    w = World(P)
    s = w.party(SERVER)
    labels = w.secret(SERVER, "labels", np.arange(8) % 4, real=True)
    s.send(0, "labels", s.randomised(labels, 2, 1.0))
    return w


# -- protocols of the engine, as changes of the one in docs/own-protocol.md ----------------------
@dataclass(frozen=True)
class Authored:
    """Edits of the page's protocol, and what is to be said of it."""

    name: str
    edits: tuple[tuple[str, str], ...]
    verdict: str
    word: str = ""

    def source(self) -> str:
        """The protocol with its edits."""
        found = re.search(r'```python\n("""Split learning whose.*?)```', PAGE.read_text(), re.S)
        assert found is not None
        text = found[1]
        for old, new in self.edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


PAGE = Path(__file__).parents[2] / "docs" / "own-protocol.md"
TRAIN = """        x = self.quantised(samples)  # the embedding, in F_p
        self.share("share", self.cut(x))  # share j to client j
        shares = await self.collect("share", senders=self.peers)
        self.send(SERVER, "embedding", sum(shares.values()))
"""
MASKED = """        x = self.quantised(samples)
        self.count += 1
        for j, key in self.keys.items():
            mask = self.prf(key, ("mask", LABEL), *x.shape)
            x = x + mask if self.index < j else x - mask
        self.send(SERVER, "embedding", x)
"""
SETUP = '''    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.keys, self.count = {}, 0

    async def setup(self) -> None:
        """Agree on a key with each other client."""
        own, others = self.key(), [j for j in self.peers if j != self.index]
        for j in others:
            self.send(j, "public key", self.public_key(own))
        theirs = await self.collect("public key", senders=others, round=0)
        self.keys = {j: self.agree(own, theirs[j]) for j in others}

    async def train('''


def masked(label: str, kept: str = '"keys", "count"') -> tuple[tuple[str, str], ...]:
    """Edits: masks of pairs of clients, by streams with a label, in place of shares."""
    return (
        ("Card, MessageSpec, Summed", "Card, MessageSpec, in_setup, Summed"),
        ('"share": "field"}', f'"public key": "public key"}}\n    kept = ("network", {kept})'),
        (TRAIN, MASKED.replace("LABEL", label)),
        ("    async def train(", SETUP),
        (
            "announcement, share, upload, gradient",
            'announcement, upload, gradient, MessageSpec(\n            "public key", "client", '
            '"client", "key", count=in_setup\n        )',
        ),
    )


SHARED = '''    shared: Any = None

    def client_network(self, index: int) -> Any:
        """A head of its own on a body of all."""
        self.shared = self.shared or super().client_network(0)
        return Wrapped(self.shared)

'''
WRAPPED = '''class Wrapped(torch.nn.Module):
    """A network around a body."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body, self.bound, self.operations = body, body.bound, body.operations


class SharedSum('''
LIMIT = """    def __init__(self, config: Any, dataset: Any, *, seed: int) -> None:
        super().__init__(config, dataset, seed=seed)
        if max(np.abs(X).max() for X in dataset.train) > 100:
            self.limit = self.limit // 2

"""
BALANCE = '''class Balance:
    """Class counts."""

    def __init__(self, labels: np.ndarray) -> None:
        self.positives = int(labels.sum())


class SharedSum('''
CLIENT = '''    def client(self, index: int) -> Any:
        """One."""
        return self.made_client(index, Balance(self.data.train_labels).positives)

'''
GIVEN = """    def __init__(self, *args: Any) -> None:
        *rest, self.positives = args
        super().__init__(*rest)

    async def train("""
AUTHORED = [
    Authored("label_of_the_round", masked("self.round"), "PROVED"),
    # It goes back to its value at the last safe point, and a mask was sent since.
    Authored("counter_that_is_kept", masked("self.count"), "VIOLATED", "come back"),
    Authored("parity_of_the_round", masked("self.round % 2"), "VIOLATED", "in 9 rounds"),
    Authored(
        "one_body_of_all_networks",
        (
            ("import numpy as np\n", "import numpy as np\nimport torch\n"),
            ("class SharedSum(", WRAPPED),
            ("    @property\n    def messages", SHARED + "    @property\n    def messages"),
        ),
        "refused",
        "has a part or parameters with it",
    ),
    Authored(
        "branch_on_a_data_set_by_another_name",
        (("    @property\n    def messages", LIMIT + "    @property\n    def messages"),),
        "NOT PROVED",
        "arrays of the data set are read",
    ),
    Authored(
        "class_counts_by_a_helper",
        (
            ("class SharedSum(", BALANCE),
            ("    @property\n    def messages", CLIENT + "    @property\n    def messages"),
            ("    async def train(", GIVEN),
            (
                "        self.update(samples",
                '        self.record("positives", n=self.positives)\n        self.update(samples',
            ),
        ),
        "NOT PROVED",
        "arrays of the data set are read",
    ),
    Authored(
        "input_by_another_name",
        (
            (
                "    @property\n    def messages",
                '    def ideal(self, world: Any) -> None:\n        """None."""\n        '
                'world.the(0, "colums")\n\n    @property\n    def messages',
            ),
        ),
        "refused",
        "party 0 has no input 'colums', but 'columns', 'network'",
    ),
]
