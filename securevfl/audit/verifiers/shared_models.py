"""The theorem on protocols whose models stay in shares, hypothesis by hypothesis.

The theorem, its proof and the numbers of its hypotheses are on the page docs/coded-split-proof.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from securevfl.audit.coalitions import may_see
from securevfl.audit.keyed import small_field
from securevfl.audit.keyed.certificate import certificate
from securevfl.audit.keyed.coupling import Coupled, couple
from securevfl.audit.keyed.runs import KeyedRun, record_keyed
from securevfl.audit.keyed.traces import traces
from securevfl.audit.proof.certificate import Check
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.pairs import UnequalError, label_traffic
from securevfl.audit.verdicts import Evidence
from securevfl.engine.streams import SecretSeed
from securevfl.privacy.adversary import SERVER_ALONE, SERVER_AND_T_CLIENTS, T_CLIENTS, Adversary
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.shared_models import SharedModels

PRIMES = (2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1)  # at which the bijection is run as well
# Of two equal masks of 8 elements or more, 2^-248 times their pairs; of a key of few bytes.
_CHANCES = {"different masks": 1e-60, "different keys": 1e-28, "server's secret": 1e-30}

# Of each check its number on the page, and which coalitions gain by it where it does not hold.
_CLIENTS, _SERVER = "clients", "server"
NUMBERS: dict[str, tuple[int, str]] = {
    "points": (1, _CLIENTS),
    "shares": (2, _CLIENTS),
    "roots": (3, _CLIENTS),
    "number of uploads": (4, ""),
    "streams": (4, _SERVER),
    "stream coefficients": (4, ""),
    "keys": (5, ""),
    "keys held": (5, ""),
    "mask function": (9, _SERVER),
    "fresh keys": (6, ""),
    "different keys": (6, _SERVER),
    "server's secret": (6, _CLIENTS),
    "fresh masks": (7, ""),
    "different masks": (7, _CLIENTS),
    "labels": (8, _SERVER),
    "streams drawn": (9, ""),
    "uploads": (9, ""),
    "bare uploads": (9, _SERVER),
    "masks of steps": (10, _CLIENTS),
    "shares of steps": (10, ""),  # other shares may hide as well
    "steps in shares": (11, _SERVER),
    "sums": (12, ""),
    "messages": (13, ""),
    "owners": (14, ""),
    "first weights": (15, _SERVER),
    "traffic": (16, ""),
    "label traffic": (16, _CLIENTS),
    "bijection": (17, ""),
    "small field": (18, ""),
}
SUPPOSED = (
    "supposed and not checked: (S1) AES-256-CTR under HKDF-SHA256 is a random function to whoever "
    "lacks the key; (S2) the operating system's entropy is uniform and the sampler exact; (S3) "
    "links are private and authentic; (S4) all parties follow the protocol and at most T holders, "
    "helpers among them, collude; (S5) rounds, batches, options and p are fixed in public "
    "beforehand; (S6) real times tell no more than virtual ones: arithmetic is not of constant "
    "time, and the server records an event where it shrinks a step"
)
GIVEN = (
    "the theorem is about what is seen beyond the decoded sums; what these tell by "
    "themselves (h equations about each row and visit, docs/sums.md) is outside it, and stands "
    "with the verdict"
)
COUNTS = (
    "granted besides: how many independent columns each party has, which all tell each other for "
    "the budget of sums; the bijections are run without it"
)


class Theorem:
    """Checks each hypothesis of the theorem on the configuration, and runs its bijections."""

    name = "theorem"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Perfect secrecy against server, T holders, or both."""
        return (
            isinstance(protocol, SharedModels)
            and claim.strength == "perfect"
            and claim.asset in ("features", "model", "labels")
            and claim.against in (T_CLIENTS, SERVER_ALONE, SERVER_AND_T_CLIENTS)
        )

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """One piece of evidence for each hypothesis; what could not be checked is named."""
        protocol = subject.protocol
        assert isinstance(protocol, SharedModels)
        against = claim.against
        if claim.asset == "labels" and against.server:
            yield self._gap("the theorem says nothing of labels where the server takes part")
            return
        if protocol.releases_models and not against.server:
            text = "models are released: what owners then see is not what the theorem is about"
            yield self._gap(text)
            return
        if protocol.prss.by_dealers:
            yield self._gap("masks are dealt, and the checks are of masks of keys that are agreed")
            return
        checks = [*subject.shared("theorem", lambda: _checks(subject))]
        for one in checks:
            yield self._judged(one, against)
        if not all(one.holds for one in checks):
            yield self._gap("no bijection was run, for the conditions do not hold")
            return
        yield from self._bijections(subject, against)
        subject.progress("all views at p = 7")
        text = (
            "at p = 7, N = 4, K = T = 1 all 2401 secrets with equal sums give the server equal "
            "integer histograms of views, over all tapes of shares and with masks by their span; "
            "60 of them give a holder equal ones of its shares, and not with one stream fewer"
        )
        yield self._judged(Check("small field", small_field.all_equal(), text), against)
        if claim.asset == "labels":
            yield self._judged(subject.shared("label traffic", lambda: _labels(subject)), against)
        yield Evidence(self.name, "silent", SUPPOSED)
        if against.server:
            yield Evidence(self.name, "silent", GIVEN)
        if getattr(protocol.config, "budget", 0):
            yield Evidence(self.name, "silent", COUNTS)

    def _gap(self, text: str) -> Evidence:
        return Evidence(self.name, "silent", text, "gap")

    def _judged(self, check: Check, against: Adversary) -> Evidence:
        """A condition that holds is part of the proof; one that does not may be the leak itself."""
        number, gains = NUMBERS[check.name]
        text = f"({number}) {check.detail}"
        if check.holds:
            return Evidence(self.name, "supports", text, "proof")
        clients = bool(against.clients) and gains == _CLIENTS
        if clients or (against.server and gains == _SERVER):
            chance = _CHANCES.get(check.name, 0.0)
            return Evidence(self.name, "accuses", text, "demonstration", chance)
        return self._gap(text)

    def _bijections(self, subject: Subject, against: Adversary) -> Iterator[Evidence]:
        """Pairs of runs with other secrets of every honest party, and equal views."""
        found = [
            (prime, _coupled(subject, prime, one, server=against.server, control=place == 0))
            for prime, coalitions in _plan(subject, against)
            for place, one in enumerate(coalitions)
        ]
        for prime, one in found:
            if one.difference:
                text = f"p = {prime}, {one.coalition}: {one.difference} differs"
                yield self._judged(Check("bijection", False, text), against)
        blind = [one for _, one in found if not one.control]
        still = [one for _, one in found if not against.server and not one.steps_differ]
        if blind or still:
            text = "a pair of runs is equal although draws were not moved, or has equal steps"
            yield self._judged(Check("bijection", False, text), against)
        equal = [(prime, one) for prime, one in found if not one.difference]
        if len(equal) < len(found) or not found:
            return
        primes = ", ".join(str(p) for p in sorted({prime for prime, _ in equal}))
        who = "; ".join(sorted({str(one.coalition) for _, one in equal}))
        what = (
            "every honest owner's columns and weights are exchanged, with equal sums"
            if against.server
            else "every honest owner's columns and weights, and all labels, are others"
        )
        text = (
            f"in {len(equal)} pairs of runs of the real code, in which holders crash and come "
            f"back, {what}; draws moved by the proof's bijection give views that are equal to the "
            f"last bit and nanosecond ({sum(one.messages for _, one in equal)} messages), and "
            f"draws that are not moved do not: {who}; p = {primes}"
        )
        yield self._judged(Check("bijection", True, text), against)


# -- hypotheses 1 to 16 ---------------------------------------------------------------------------


def _checks(subject: Subject) -> list[Check]:
    protocol = _protocol(subject)
    subject.progress("certificate of the theorem")
    found = list(certificate(protocol, seed=subject.seed))
    if not all(one.holds for one in found):
        return found
    subject.progress("what a run draws and asks")
    found += _traced(subject)
    found += [_messages(subject), _fresh(subject), _owners(protocol), _first_weights(subject)]
    return found


def _protocol(subject: Subject) -> SharedModels:
    assert isinstance(subject.protocol, SharedModels)
    return subject.protocol


def _restarted(protocol: SharedModels) -> tuple[int, ...]:
    """Holders that crash in the recorded runs: the first and the last."""
    return (0, protocol.code.parties - 1)


def _options(subject: Subject, prime: int) -> dict[str, Any]:
    """Options of the small instance: the protocol's own, or at another prime; no budget of sums."""
    known = type(subject.protocol.config).model_fields
    made: dict[str, Any] = {"sum_budget": 0.0} if "sum_budget" in known else {}
    if prime == _protocol(subject).code.field.modulus:
        return made
    return made | {"prime": prime, "data_bits": 6, "gradient_bits": 8}


def _recorded(subject: Subject, prime: int) -> KeyedRun:
    """A run of the small instance."""

    def make() -> KeyedRun:
        options = _options(subject, prime)
        made: Any = subject.instance(options=options)
        subject.note(f"{subject.describe(options=options)}; two holders crash and come back")
        return record_keyed(made, restarted=_restarted(made))

    return subject.shared(f"keyed run {prime}", make)


def _traced(subject: Subject) -> list[Check]:
    """Each condition on draws, labels and steps, in the small run and in those beyond it."""
    prime = _protocol(subject).code.field.modulus
    found = {one.name: one for one in traces(_recorded(subject, prime))}
    for changed in subject.beyond:
        made: Any = subject.instance(**changed)
        subject.note(f"{subject.describe(**changed)}; two holders crash and come back")
        for one in traces(record_keyed(made, restarted=_restarted(made))):
            if one.name not in found or found[one.name].holds:
                found[one.name] = one
    return list(found.values())


def _messages(subject: Subject) -> Check:
    """Every message of every run is declared and equals its formula."""
    runs = [("a small run", subject.comparison)]
    runs += [(one.setting.name, one.comparison) for one in subject.settings]
    wrong = [f"{name}: {found.deviations[0]}" for name, found in runs if found.deviations]
    wrong += [
        f"{name}: some messages could not be compared"
        for name, found in runs
        if found.without_formula or found.forgotten
    ]
    computed = sum(found.computed for _, found in runs)
    text = (
        f"all {computed} messages of {len(runs)} runs ({', '.join(name for name, _ in runs)}) "
        "equal the formulas of the page byte by byte: shares of data and models, keys, uploads "
        "from shares with exactly the steps that were dealt, deals, and control"
    )
    return Check("messages", not wrong, text if not wrong else wrong[0])


def _fresh(subject: Subject) -> Check:
    """In the other runs, too, all masks and keys are fresh and used once."""
    wrong = []
    draws = keys = 0
    for one in subject.settings:
        draws, keys = draws + one.draws, keys + one.keys
        if one.strange or one.strange_keys or one.thrown:
            what = (
                one.strange[0] if one.strange else f"{one.strange_keys or one.thrown} draws or keys"
            )
            wrong.append(f"{one.setting.name}: {what} of another origin, or not used once")
    text = (
        f"in all settings, too, {draws} masks and {keys} keys are results of one call of the "
        "sampler each, under 32 fresh bytes, used once"
    )
    return Check("fresh masks", not wrong, text if not wrong else wrong[0])


def _owners(protocol: SharedModels) -> Check:
    n, T = protocol.owners, protocol.code.privacy
    text = f"{n} owners, at least T + 2 = {T + 2}: every coalition leaves two honest ones"
    return Check("owners", n >= T + 2, text if n >= T + 2 else f"{n} owners, T + 2 = {T + 2}")


def _first_weights(subject: Subject) -> Check:
    """With other secret choices and the same public seed every owner has another first model."""
    first: Any = subject.instance()
    other: Any = subject.instance(secrets=SecretSeed(subject.protocol.seed + 101))
    one, two = first.parties(), other.parties()
    same = [
        n
        for n in range(first.owners)
        if _rows_alike(first.integers(one[n]).model, other.integers(two[n]).model)
    ]
    text = (
        "every owner's first weights follow from its own secret choices, and not from the public "
        "seed (in a simulation these choices follow from the secret seed)"
    )
    wrong = f"the first weights of owners {same} follow from the public seed"
    return Check("first weights", not same, wrong if same else text)


def _rows_alike(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two models have a row in common that is not zero."""
    return bool(((one == two).all(axis=1) & one.any(axis=1)).any())


def _labels(subject: Subject) -> Check:
    """Sizes, order, times and control messages of runs that differ in the labels alone."""
    try:
        seen, _ = label_traffic(subject, lambda key: may_see(T_CLIENTS, subject.protocol, key))
        anything, names = label_traffic(subject)
    except UnequalError as error:
        return Check("traffic", False, str(error))
    if seen or anything:
        return Check("label traffic" if seen else "traffic", False, seen or anything)
    text = (
        f"pairs of runs that differ in the labels alone ({names}) have the same traffic: messages, "
        "sizes, order, times, what control messages say, and what parties but the server tell the "
        "history"
    )
    return Check("traffic", True, text)


# -- the bijections -------------------------------------------------------------------------------


def _plan(subject: Subject, against: Adversary) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    """Coalitions by prime: many at the configuration's own, one at each other."""
    protocol = _protocol(subject)
    own, every = protocol.code.field.modulus, coalitions_of(protocol, subject.seed)
    if not against.clients:
        every = [()]
    yield own, every
    for prime in PRIMES:
        if prime != own:
            yield prime, every[-1:]


def coalitions_of(protocol: SharedModels, seed: int) -> list[tuple[int, ...]]:
    """The first T holders, and random ones of every size up to T: owners, helpers, and both."""
    N, T, owners = protocol.code.parties, protocol.code.privacy, protocol.owners
    stream = np.random.Generator(np.random.Philox(seed + 4))
    chosen = [tuple(range(T))]
    for size in range(1, T + 1):
        for among in (range(owners), range(owners, N), range(N)):
            if len(among) >= size:
                drawn = stream.choice(np.array(among), size, replace=False)
                chosen.append(tuple(sorted(drawn.tolist())))
        if size > 1 and owners < N:
            own = stream.choice(owners, size - 1, replace=False).tolist()
            chosen.append(tuple(sorted([*own, int(stream.integers(owners, N))])))
    return list(dict.fromkeys(chosen))


def _coupled(
    subject: Subject, prime: int, clients: tuple[int, ...], *, server: bool, control: bool
) -> Coupled:
    """One pair of runs, made once for all claims."""

    def make() -> Coupled:
        subject.progress(f"the bijection at p = {prime}")
        before, coalition = _recorded(subject, prime), Coalition(server=server, clients=clients)
        restarted = _restarted(before.protocol)

        def remake(columns: Any, labels: Any) -> SharedModels:
            options = _options(subject, prime)
            made: Any = subject.instance(columns=columns, labels=labels, options=options)
            return made  # type: ignore[no-any-return]

        seed = subject.seed + 7
        subject.note(f"{coalition} at p = {prime}: a pair of runs, coupled by the bijection")
        more: Any = {"seed": seed, "restarted": restarted, "control": control, "remake": remake}
        return couple(before, coalition, **more)

    return subject.shared(f"coupled {prime} {clients} {server}", make)
