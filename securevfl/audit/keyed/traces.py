"""The proof's conditions on what a recorded run drew, asked its keys for, and sent.

Hypotheses 6 to 10 of docs/coded-split-proof.md.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.keyed.keystreams import Asked, stream_of
from securevfl.audit.keyed.moved_draws import Shares
from securevfl.audit.keyed.runs import KeyedRun
from securevfl.audit.proof.certificate import Check
from securevfl.audit.proof.linear_algebra import coefficients
from securevfl.engine import wire
from securevfl.engine.party import SERVER
from securevfl.field.prss import KEY, derive
from securevfl.protocols.base.messages import MessageKey

_FEW = 8  # different bytes of a key; 32 random ones have as few with probability 1e-33
_BLOCK = 8  # elements of a mask beyond which equal ones are no accident


def traces(run: KeyedRun) -> Iterator[Check]:
    """Check each condition on a run."""
    yield _held(run)
    yield _fresh_bytes(run)
    yield from _guessable(run)
    yield _fresh_elements(run)
    yield _repeated(run)
    yield _labels(run)
    yield _streams(run)
    yield _uploads(run)
    yield _deals(run)
    yield _dealt(run)
    yield _up_to_date(run)
    yield _sums(run)


def _held(run: KeyedRun) -> Check:
    """At the end each holder has its keys as they were drawn, and no other."""
    prss, parties = run.protocol.prss, run.run.parties
    keys, wrong = run.keys, []
    for j in range(run.protocol.code.parties):
        wanted = {key: keys.get(key) for key in prss.held(j)}
        if dict(getattr(parties[j], "keys", {})) != wanted:
            wrong.append(j)
    text = (
        f"each of {run.protocol.code.parties} holders ends with exactly the keys of the blocks "
        f"without it, as they were drawn, {len(keys)} keys in all"
    )
    return Check("keys held", not wrong, text if not wrong else f"holder {wrong[0]} has other keys")


def _fresh_bytes(run: KeyedRun) -> Check:
    """Keys and the server's secret: 32 bytes each, of 32 fresh ones each, and none drawn later."""
    prss, drawn = run.protocol.prss, run.secrets
    wanted = {n: len(prss.dealt(n)) for n in range(run.protocol.code.parties)} | {SERVER: 1}
    found = {n: len(drawn.get(n, ())) for n in wanted}
    every = [one for values in drawn.values() for one in values]
    strange = sum(1 for _ in randomness.unexplained_keys(run.log, every))
    short = [one for one in every if len(one) != KEY]
    secret = getattr(run.server, "secret", b"")
    own = [*drawn.get(SERVER, ())] == [secret]
    text = (
        f"all {len(every)} keys, and the server's secret among them, are {KEY} fresh bytes of the "
        "operating system each, drawn once, and never again after a restart"
    )
    if found != wanted:
        text = f"parties drew {found} keys, and {wanted} are needed"
    elif strange or short:
        text = f"{strange + len(short)} keys have another origin, or were used before"
    elif not own:
        text = "the server uses another secret than it drew"
    holds = found == wanted and not strange and not short and own
    return Check("fresh keys", holds, text)


def _guessable(run: KeyedRun) -> Iterator[Check]:
    """No key is another one, and none has so few different bytes that it cannot be random."""
    every = [one for n, values in run.secrets.items() if n != SERVER for one in values]
    twice = len(every) - len(set(every))
    poor = sum(len(set(one)) <= _FEW for one in every)
    text = f"{len(every)} keys differ, and each has more than {_FEW} different bytes"
    wrong = f"{twice} keys are equal to others, {poor} have {_FEW} different bytes or fewer"
    yield Check("different keys", not twice and not poor, wrong if twice or poor else text)
    secret = getattr(run.server, "secret", b"")
    known = secret in every or len(set(secret)) <= _FEW
    text = f"the server's secret is no holder's key, and has more than {_FEW} different bytes"
    wrong = "the server's secret is a holder's key, or no random one"
    yield Check("server's secret", not known, wrong if known else text)


def _fresh_elements(run: KeyedRun) -> Check:
    """Z and V: what is declared, uniform below p, of fresh keys, in full length, used once."""
    p, tapes = run.protocol.code.field.modulus, run.run.tapes
    strange = list(randomness.unexplained(run.log, tapes.values(), p))
    thrown = randomness.unused(run.log, tapes.values())
    wrong = []
    for n in range(run.protocol.code.parties):
        owner = n < run.protocol.owners
        wanted = [d.shape(n, 0) for d in run.protocol.draws] if owner else []
        found = [] if n not in tapes else [one.shape for one in tapes[n].draws]
        if found != [one for one in wanted if one is not None]:
            wrong.append(f"party {n} draws {found}, declared is {wanted}")
    draws = sum(len(tape.draws) for tape in tapes.values())
    text = (
        f"all {draws} masks of data and models are uniform below p, each the result of one call of "
        "the sampler under 32 fresh bytes, in full length, used once and none thrown away"
    )
    problem = [*wrong, *strange, *([f"{thrown} draws were thrown away"] if thrown else [])]
    return Check("fresh masks", not problem, text if not problem else f"masks: {problem[0]}")


def _repeated(run: KeyedRun) -> Check:
    """No mask row Z_t or V_t is another one, or constant."""
    seen: Counter[bytes] = Counter()
    constant = 0
    for tape in run.run.tapes.values():
        for draw in tape.draws:
            for row in draw:
                if row.size < _BLOCK:
                    continue
                seen[np.ascontiguousarray(row).tobytes()] += 1
                constant += bool((row == row.flat[0]).all())
    twice = sum(count - 1 for count in seen.values())
    text = f"{len(seen)} masks differ from one another, and none is constant"
    wrong = f"{twice} masks of data or models are equal to others, {constant} are constant"
    return Check(
        "different masks", not twice and not constant, wrong if twice or constant else text
    )


def _labels(run: KeyedRun) -> Check:
    """One label, one result: labels differ, the rows are in them, and bytes are never others."""
    uses, problem = run.uses(), ""
    if len({label for _, label in uses.values()}) < len(uses):
        problem = "two uploads have one label"
    for round, (use, label) in uses.items():
        if use.rows.tobytes() not in label:
            problem = f"the rows of upload {round} are not in its label"
        if run.digests[use.steps] not in label:
            problem = f"the digest of the steps before upload {round} is not in its label"
    keys, known = set(run.keys.values()), set(run.digests.values())
    own = {label for _, label in uses.values()} if not problem else set()
    for one in run.questions.streams:
        strange = one.key in keys and one.label not in own
        if strange and not any(digest in one.label for digest in known):
            problem = "masks are drawn under a label that does not tell the steps in the model"
    sent: dict[MessageKey, bytes] = {}
    again = 0
    for message in run.run.messages:
        if message.key.kind == "embedding":
            again += message.key in sent
            if sent.setdefault(message.key, message.content) != message.content:
                problem = f"holder {message.key.sender} answers label {message.key.round} twice"
    text = (
        f"the {len(uses)} labels of a run differ and hold the rows that they stand for and the "
        f"digest of the steps in the model; {again} uploads were sent again, with the same bytes"
    )
    return Check("labels", not problem, problem or text)


def _streams(run: KeyedRun) -> Check:
    """For each upload exactly (m - |A|) |B| h elements are drawn of each key of its holder."""
    protocol, code = run.protocol, run.protocol.code
    u = protocol.result_degree * (code.size - 1) - code.size + 1
    width = next(iter(run.integers.values())).model.shape[1]
    uses = run.uses()
    sizes = {label: len(use.rows) * width for use, label in uses.values()}
    known = {key: place for place, key in run.keys.items()}
    times: Counter[tuple[bytes, bytes]] = Counter()
    problem = ""
    for one in run.questions.streams:
        if one.key not in known or one.label not in sizes:
            continue
        times[one.key, one.label] += 1
        wanted = sizes[one.label] * (code.privacy + u - len(protocol.prss.blocks[known[one.key]]))
        if (one.size, one.modulus) != (wanted, code.field.modulus):
            problem = _wrong_size(one, wanted)
    strangers = {o.label for o in run.questions.streams if o.key in known} - set(sizes)
    if strangers and not protocol.releases_models:
        problem = f"keys are asked for {len(strangers)} labels that no upload has"
    for message in run.run.messages:
        if message.key.kind == "embedding":
            label = uses[message.key.round][1]
            times.subtract((run.keys[one], label) for one in protocol.prss.held(message.key.sender))
    if not problem and (not times or min(times.values()) < 0):
        problem = "a holder uploads without asking for every stream of the keys that it holds"
    text = (
        "for each upload its holder draws, of each of its keys, (m - |A|) |B| h elements below p, "
        f"m = T + {u}; {len(known)} keys, {len(sizes)} labels"
    )
    return Check("streams drawn", not problem, problem or text)


def _uploads(run: KeyedRun) -> Check:
    """Each upload is psi + P rho, by the proof's formulas and not those that are declared."""
    protocol, code, field = run.protocol, run.protocol.code, run.protocol.code.field
    shares, steps, looked = Shares.of(protocol, run.integers, run.run.tapes), 0, 0
    for round, (use, label) in run.uses().items():
        while steps < use.steps:
            steps += 1
            shares.step(protocol.use_of(steps).rows, run.dealt[steps])
        psi = shares.results(use.part, use.rows)
        hidden = _masks(run, label, psi.shape[1:])
        for (holder, _), sent in run.run.sent("embedding", round).items():
            looked += 1
            mask = field.subtract(sent, psi[holder]).reshape(-1)
            if not mask.any():
                text = f"upload {round} of holder {holder} is its share of the sums, without a mask"
                return Check("bare uploads", False, text)
            if not np.array_equal(mask, hidden[holder]):
                text = f"the mask of upload {round} of holder {holder} is not the proof's"
                return Check("uploads", False, text)
    text = f"{looked} uploads are psi + P rho, computed from secrets, draws and keys by the proof"
    return Check("uploads", code.parties <= looked, text)


def _masks(run: KeyedRun, label: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """P rho of a label at all holders' points, (N, |B| h), in plain formulas."""
    protocol, code, field = run.protocol, run.protocol.code, run.protocol.code.field
    p, u = field.modulus, protocol.result_degree * (code.size - 1) - code.size + 1
    data, size = code.betas[: code.segments], math.prod(shape)
    blocks = protocol.prss.blocks
    counts = [code.privacy + u - len(A) for A in blocks]
    streams = [
        stream_of(p, run.keys[key], label, count * size, field.dtype).reshape(count, size)
        for key, count in enumerate(counts)
    ]
    rows = []
    for alpha in code.alphas:
        root = math.prod(alpha - b for b in data)
        first = [root * math.prod(alpha - code.alphas[a] for a in A) for A in blocks]
        both = zip(first, counts, strict=True)
        rows.append([one * pow(alpha, e, p) % p for one, count in both for e in range(count)])
    values: np.ndarray = field.matmul(
        field.reduce(np.array(rows, object)), np.concatenate(streams), trusted=True
    )
    return values


def _wrong_size(one: Asked, wanted: int) -> str:
    return f"{one.size} elements of a stream below {one.modulus} were drawn, and not {wanted}"


def _deals(run: KeyedRun) -> Check:
    """Seeds of the masks of steps, one for each step and holder, and digests of steps."""
    server, steps, T = run.server, run.steps, run.protocol.code.privacy
    named: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    problem = ""
    for key, label in run.questions.derived:
        if key == server.secret:
            kind, number, *holder, hashed = wire.decode(label)
            named[number, holder[0] if kind == "deal" else SERVER].add(hashed)
    wanted = {(t, j) for t in range(1, len(steps) + 1) for j in (SERVER, *range(T))}
    if set(named) != wanted:
        problem = "the masks of steps are not named by the numbers of all steps and holders"
    for (number, _), hashes in named.items():
        step = steps.get(number)
        own = b"" if step is None else np.ascontiguousarray(step, np.int64).tobytes()
        if not problem and hashes != {hashlib.sha256(own).digest()}:
            problem = f"the masks of step {number} do not follow from it alone"
    seeds = {
        one for t, step in steps.items() for one in server.dealing.seeds(server.secret, t, step)
    }
    if len({*seeds, *run.own_digests.values()}) < len(wanted):
        problem = "two steps, or two holders, have the same seed of masks or digest"
    for message in run.run.messages:
        number = message.key.round
        if message.key.kind in ("deal", "seed") and message.payload[0] != run.own_digests[number]:
            problem = f"holders are told another digest of step {number} than its own"
    text = (
        f"the masks and digests of {len(steps)} steps have {len(wanted)} different values, "
        "each derived from the server's secret, the step's number, the holder's and the step"
    )
    return Check("masks of steps", not problem, problem or text)


def _dealt(run: KeyedRun) -> Check:
    """Digests and shares of all steps are what other code computes from the steps."""
    problem = _dealt_otherwise(run)
    text = f"digests and shares of {len(run.steps)} steps are what the formulas of the page give"
    return Check("shares of steps", not problem, problem or text)


def _dealt_otherwise(run: KeyedRun) -> str:
    """Difference of digests and shares from what other code computes, in words; empty for none."""
    code, secret = run.protocol.code, run.server.secret
    field, p, K, T = code.field, code.field.modulus, code.segments, code.privacy
    points = (*code.betas[:K], *code.alphas[:T])
    onto = field.reduce(np.array([coefficients(points, at, p) for at in code.alphas[T:]], object))
    for t, step in run.steps.items():
        hashed = hashlib.sha256(np.ascontiguousarray(step, np.int64).tobytes()).digest()
        if run.own_digests[t] != derive(secret, wire.encode(("digest", t, hashed))):
            return f"the digest of step {t} is not that of the server's secret and the step"
        seeds = [derive(secret, wire.encode(("deal", t, j, hashed))) for j in range(T)]
        first = [stream_of(p, seed, b"share", step[0].size, field.dtype) for seed in seeds]
        own = field.reduce(step.astype(np.int64)).reshape(K, -1)
        through = np.concatenate([own, *(one[None] for one in first)])
        every = np.concatenate([through[K:], field.matmul(onto, through)])
        if not np.array_equal(every.reshape(-1, *step.shape[1:]), np.stack(run.dealt[t])):
            return f"shares of step {t} are not those of its seeds and of the step"
    return ""


def _up_to_date(run: KeyedRun) -> Check:
    """Each upload left a holder whose share has exactly the steps that the label says."""
    problem, looked = "", 0
    for message in run.run.messages:
        if message.key.kind == "embedding":
            looked += 1
            _, done, ahead, _ = message.state.kept["model"]
            if (done, tuple(ahead)) != (run.protocol.use_of(message.key.round).steps, ()):
                problem = f"holder {message.key.sender} uploads from a share of {done} steps"
    text = f"{looked} uploads left holders whose share has exactly the steps that the label says"
    return Check("steps in shares", not problem, problem or text)


def _sums(run: KeyedRun) -> Check:
    """Check that the server decodes sums of owners' columns times models, and nothing else."""
    protocol, code = run.protocol, run.protocol.code
    R = code.recovery_threshold(protocol.result_degree)
    wrong = []
    for round, ideal in _whole_sums(run):
        sent = {j: one for (j, _), one in run.run.sent("embedding", round).items()}
        used = sorted(sent)[-R:]
        stack = np.stack([sent[j] for j in used])
        decoded = code.field.signed(code.decode(stack, used, degree=protocol.result_degree))
        if not np.array_equal(decoded, ideal):
            wrong.append(round)
    text = (
        f"the sums that uploads of {protocol.last_use} labels decode to are those of owners' "
        "columns and models, computed in whole numbers without shares"
    )
    return Check(
        "sums", not wrong, text if not wrong else f"upload {wrong[0]} decodes to another sum"
    )


def _whole_sums(run: KeyedRun) -> Iterator[tuple[int, np.ndarray]]:
    """Of each upload its round and U_1 to U_K, (K, |B|, h): X-bar times models, in int64."""
    own, field = [run.integers[n] for n in range(run.protocol.owners)], run.protocol.code.field
    data = {
        part: field.signed(np.concatenate([one.data[part] for one in own], axis=2)).astype(np.int64)
        for part in own[0].data
    }
    first = field.signed(np.concatenate([one.model for one in own])).astype(np.int64)
    models, steps = np.stack([first] * run.protocol.code.segments), 0
    for round, (use, _) in run.uses().items():
        while steps < use.steps:
            steps += 1
            rows, step = run.protocol.use_of(steps).rows, run.steps[steps].astype(np.int64)
            models += np.stack([x[rows].T @ g for x, g in zip(data["train"], step, strict=True)])
        X = data[use.part][:, use.rows]
        yield round, np.stack([x @ W for x, W in zip(X, models, strict=True)])
