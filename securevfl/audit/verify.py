"""Verify the claims of a protocol: run it, cut views, and say what holds, with the evidence."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.games import TESTS, Size
from securevfl.audit.proof.certificate import Check, certificate
from securevfl.audit.proof.exhaustive import Exhaustion, Toy, exhaust, small_code, toys
from securevfl.audit.recorded_runs import Arena, Trial, arena, codes_shares, couple, departures
from securevfl.audit.sealed_links import open_links
from securevfl.audit.share_recovery import Recovery, coalitions, pool_shares, recover_by_server
from securevfl.audit.statistical import LEVEL, Outcome
from securevfl.audit.verdicts import (
    NOT_FOUND,
    NOT_TESTED,
    PROVED,
    VIOLATED,
    Shown,
)
from securevfl.audit.verdicts import Finding as Finding
from securevfl.audit.verdicts import Report as Report
from securevfl.data.source import DataSource
from securevfl.engine.security.sealing import Sealer
from securevfl.errors import ConfigurationError
from securevfl.models.user_code import allow_options
from securevfl.privacy.claims import Claim, link_claims
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

P31 = 2**31 - 1
_CLIENTS, _SERVER, _POOLED, _UPLOADS = "T clients", "server", "server + T clients", "T uploads"

# Which tests bear on which claim.
BEARING = {
    _CLIENTS: ("equality", "span, clients"),
    _UPLOADS: ("equality", "span, clients"),
    _SERVER: ("span, server", "ranks, server", "two samples"),
    _POOLED: (
        "span, clients",
        "span, server",
        "ranks, server",
        "ranks, server + clients",
        "two samples",
    ),
}
_NOT_RUN = "not run"
NOT_COVERED = (
    "ideal randomness and private channels are supposed; with a keystream and sealed links the "
    "guarantee is computational",
    "parties follow the protocol: an active server or client is another claim",
    "time, size and order of messages, and what a machine leaks otherwise",
    "what the wanted sums and dL/dH say by themselves",
    "a server that knows the secret seed, from which secret choices follow in a simulation: the "
    "sums then give it the rows where all columns together are at most the embedding's width",
)


def verify(
    protocol: str | type[Protocol] = "fedvs",
    data: VerticalDataset | DataSource | str = "digits",
    *,
    plain: bool = False,
    seed: int = 0,
    level: float = LEVEL,
    tests: Sequence[str] = tuple(TESTS),
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Report:
    """Check every claim of a protocol in a configuration.

    For protocols that share by a Lagrange code: the certificate of the proof at the K, T, N and p
    of the configuration, exhaustive enumeration of small instances, the bijection of the proof run
    on the real code, statistical games against real runs, the provenance of masks, and the attacks.
    Claims of other protocols have no verifier yet, and the report says so.

    Parameters
    ----------
    protocol : str or type of Protocol
    data : VerticalDataset, DataSource or str
        Fixes the parties and default K; the runs use small data sets of their own.
    plain : bool
        Verify the paper's evaluation, `masked=False`, and the claims as the paper makes them: the
        card of plain evaluation claims nothing against the server.
    seed : int
        Of what is not secret, and of the sampled subsets.
    level : float
        Failure probability of each test.
    tests : sequence of str
        Names in `securevfl.audit.games.TESTS`; all if not given.
    progress : callable, optional
        Told what is being done.
    **options
        The protocol's own.

    Returns
    -------
    Report

    Raises
    ------
    ConfigurationError
        For options that cannot run, or `plain` for a protocol that has no masks.
    """
    allow_options(options)
    cls = get_protocol(protocol) if isinstance(protocol, str) else protocol
    if plain:
        if "masked" not in cls.Config.model_fields:
            raise ConfigurationError(f"verify: {cls.name} has no plain evaluation; leave out plain")
        options["masked"] = False
    if isinstance(data, str):
        data = DataSource(data, {"seed": seed})
    dataset = data.load() if isinstance(data, DataSource) else data
    made: Any = cls(make_config(cls, options), dataset, seed=seed)
    claims = _claims(made, plain)
    parameters = {**made.describe(), "seed": seed}
    links = _judge_links()
    if not codes_shares(made):
        found = tuple(_unknown(claim, cls.name) for claim in claims)
        return Report(cls.name, parameters, (*found, *links), _card(made), NOT_COVERED)
    evidence = _Evidence(made, seed, level, tuple(tests), progress or _silent)
    found = tuple(evidence.judge(claim) for claim in claims)
    return Report(cls.name, parameters, (*found, *links), evidence.shown(), NOT_COVERED)


def _judge_links() -> tuple[Finding, ...]:
    """What sealed links claim against an outsider; the proof is that of the cipher."""
    faults = open_links(Sealer)
    if faults:
        return tuple(Finding.of(c, VIOLATED, "; ".join(faults), 0.0) for c in link_claims(True))
    said = (
        "the payload is not in the wire bytes; a frame with a flipped bit in its counter, its "
        "payload or its tag is refused"
    )
    chance = 3 * 2.0**-128  # that a wrong tag of three is taken for right
    return tuple(Finding.of(claim, NOT_FOUND, said, chance) for claim in link_claims(True))


def _claims(made: Protocol, plain: bool) -> tuple[Claim, ...]:
    """The card's claims; under `plain` the paper's come first and replace those that say none."""
    if not plain:
        return made.claims
    stated = {(claim.who, claim.about) for claim in made.paper_claims}
    rest = [claim for claim in made.claims if (claim.who, claim.about) not in stated]
    return (*made.paper_claims, *rest)


def _unknown(claim: Claim, name: str) -> Finding:
    if claim.notion == "none":
        return _nothing_claimed(claim)
    why = f"there is no verifier for a {claim.notion} claim of {name}: it does not share its data "
    return Finding.of(claim, NOT_TESTED, why + "by a Lagrange code")


def _nothing_claimed(claim: Claim) -> Finding:
    return Finding.of(claim, NOT_TESTED, f"nothing is claimed: {claim.source}")


def _card(made: Protocol) -> tuple[Shown, ...]:
    return tuple(Shown(who, what, "the card") for who, what in made.card.sees.items())


def _silent(_what: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class _Condition:
    """Something that PROVED needs, and the claims that need it."""

    holds: bool
    words: str
    needed_by: tuple[str, ...]


class _Evidence:
    """Everything that is computed once and bears on several claims."""

    def __init__(
        self,
        made: Any,
        seed: int,
        level: float,
        tests: tuple[str, ...],
        progress: Callable[[str], None],
    ) -> None:
        self.made, self.seed, self.level = made, seed, level
        self.code, self.masked = made.public.code, bool(made.config.masked)
        self.tests, self.progress = tests, progress
        self._outcomes: dict[tuple[str, str], tuple[Outcome, ...]] = {}

    # -- what is run ---------------------------------------------------------------------------

    @functools.cached_property
    def conditions(self) -> tuple[_Condition, ...]:
        """All parts of a proof."""
        parts = [self._certified, self._followed, self._enumerated, self._coupled, self._drawn]
        return tuple(condition for part in parts for condition in part())

    @property
    def _provable(self) -> tuple[str, ...]:
        """Adversaries that the proof covers; in plain evaluation T clients or T uploads only."""
        return (_CLIENTS, _UPLOADS) + ((_SERVER, _POOLED) if self.masked else ())

    def _certified(self) -> Iterable[_Condition]:
        self.progress("certificate")
        powers = self.made.public.mask_powers if self.masked else None
        for check in certificate(self.code, powers, seed=self.seed):
            about_masks = check.name.startswith("mask") and check.name != "mask minors"
            needed = (_SERVER, _POOLED) if about_masks else self._provable
            yield _Condition(check.holds, _words(check), needed)

    def _arena(self, **more: Any) -> Arena:
        """The configuration's own N, K, T and p on a small data set, trained for three rounds."""
        stream = np.random.Generator(np.random.Philox(self.seed + 1))
        rows = 2 * self.code.segments + 1
        features = [stream.random((rows, 2)) for _ in range(self.code.parties)]
        swap: dict[int, int] = more.pop("swap", {})
        features = [features[swap.get(n, n)] for n in range(len(features))]
        return arena(type(self.made), features, instead=swap, seed=self.seed, **self._options(more))

    def _options(self, more: dict[str, Any]) -> dict[str, Any]:
        own = {
            "segments": self.code.segments,
            "privacy": self.code.privacy,
            "prime": self.code.field.modulus,
            "spares": self.made.config.spares,
            "masked": self.masked,
        }
        return {"rounds": 3, "width": 3, **own, **more}

    @functools.cached_property
    def trial(self) -> Trial:
        """One recorded run."""
        return self._arena().run()

    def _followed(self) -> Iterable[_Condition]:
        self.progress("a run against the formulas of the proof")
        wrong = list(departures(self.trial))
        elements = sum(
            m.payload.size for m in self.trial.whole.messages if hasattr(m.payload, "size")
        )
        words = (
            f"a run of the real code: {elements} elements of its messages equal the formulas of "
        )
        words += "the proof, draw by draw fresh, with S and D large enough"
        yield _Condition(
            not wrong, words if not wrong else f"a run departs: {wrong[0]}", self._provable
        )

    def _coupled(self) -> Iterable[_Condition]:
        """The bijection, with two honest clients in each other's place."""
        self.progress("coupled runs")
        N, T = self.code.parties, self.code.privacy
        sound = all(check.holds for check in certificate(self.code, subsets=8))
        if N < T + 2 or self._departs or not sound:
            return
        for prime in sorted({P31, self.code.field.modulus}):
            first = self._arena(prime=prime)
            other = self._arena(prime=prime, swap={N - 1: N - 2, N - 2: N - 1})
            one = self.trial if prime == self.code.field.modulus else first.run()
            for who in set(self._provable) - {_UPLOADS}:
                coupled = couple(first, other, _coalition(who, T), one=one)
                words = f"at p = {prime} two runs with two clients' secrets exchanged, and tapes "
                words += f"moved by the proof's bijection, gave {coupled.coalition} identical views"
                words += f" ({coupled.elements} elements)"
                wrong = f"{coupled.differences[0]} differ" if coupled.differences else ""
                needed = (_CLIENTS, _UPLOADS) if who == _CLIENTS else (who,)
                yield _Condition(not wrong, wrong or words, needed)

    def _enumerated(self) -> Iterable[_Condition]:
        self.progress("exhaustive enumeration")
        made = toys(self.masked)
        for who in self._provable:
            results = [exhaust(toy, _coalition(who, toy.code.privacy)).equal for toy in made]
            words = (
                f"{sum(results)} of {len(made)} toy shapes (K and T up to 2, one and two rounds)"
            )
            words += " enumerated exactly have equal integer histograms for all secrets"
            yield _Condition(all(results), words, (who,))

    def _drawn(self) -> Iterable[_Condition]:
        self.progress("provenance of masks")
        with randomness.watch() as log:
            trial = self._arena().run()
        strange = list(randomness.unexplained(log, trial.tapes.values()))
        words = f"all {sum(len(t.draws) for t in trial.tapes.values())} draws came from the one "
        words += "sampler, each call keyed by 32 fresh bytes of the operating system"
        wrong = f"masks of another origin: {strange[0]}" if strange else ""
        yield _Condition(not strange, wrong or words, self._provable)

    @property
    def _departs(self) -> bool:
        return next(iter(departures(self.trial)), None) is not None

    def outcomes(self, name: str, about: str) -> tuple[Outcome, ...]:
        """Results of a statistical test, at 2^31-1 and at the configuration's own prime."""
        if (name, about) not in self._outcomes:
            primes = sorted({P31, self.code.field.modulus})
            self._outcomes[name, about] = tuple(self._test(name, about, p) for p in primes)
        return self._outcomes[name, about]

    def _test(self, name: str, about: str, prime: int) -> Outcome:
        self.progress(f"{name}, {about}, p = {prime}")
        size = Size(self.code.segments, self.code.privacy, prime, {"masked": self.masked})
        try:
            return TESTS[name](type(self.made), size, about, self.level)
        except ConfigurationError as error:  # such as points that no sound code has
            return Outcome(name, 1.0, self.level, f"{_NOT_RUN}: {error}")

    @functools.cached_property
    def recovery(self) -> Recovery:
        """Server and T clients at 2^31-1, 24 features, 60 rows a segment, 8 rounds of h = 8."""
        self.progress("recovery attack")
        K, T = self.code.segments, self.code.privacy
        N = Size(K, T).parties
        stream = np.random.Generator(np.random.Philox(self.seed + 2))
        widths = [len(part) for part in np.array_split(np.arange(24), N - T)]
        features = [stream.random((60 * K, d)) for d in [2] * T + widths]
        made = arena(
            type(self.made),
            features,
            segments=K,
            privacy=T,
            prime=P31,
            rounds=8,
            width=8,
            masked=self.masked,
        )
        try:
            return recover_by_server(made.run(), tuple(range(T)))
        except ConfigurationError:  # points that no sound code has
            return Recovery(False, 0.0, 0.0, 0)

    # -- what is concluded ---------------------------------------------------------------------

    def judge(self, claim: Claim) -> Finding:
        """Verdict on a claim."""
        if claim.notion == "none":
            return _nothing_claimed(claim)
        if claim.who not in BEARING or claim.about not in ("features", "model"):
            why = f"no verifier for {claim.about} against {claim.who}"
            return Finding.of(claim, NOT_TESTED, why)
        if claim.notion != "perfect":
            why = f"a {claim.notion} claim rests on its primitives, which the engine's tests cover"
            return Finding.of(claim, NOT_TESTED, why)
        bearing = [o for name in BEARING[claim.who] if name in self.tests
                   for o in self.outcomes(name, claim.about)]  # fmt: skip
        against = self._against(claim.who, bearing)
        if against is not None:
            return Finding.of(claim, VIOLATED, *against)
        silent = self._silence(bearing)
        missing = [c.words for c in self.conditions if claim.who in c.needed_by and not c.holds]
        if missing or claim.who not in self._provable:
            why = "the proof does not apply: " + ("; ".join(missing) or "plain evaluation")
            return Finding.of(claim, NOT_FOUND, f"{silent}; {why}", self.level * len(bearing))
        kept = [c.words for c in self.conditions if claim.who in c.needed_by]
        return Finding.of(claim, PROVED, "; ".join([*kept, silent]))

    def _silence(self, bearing: Sequence[Outcome]) -> str:
        left_out = [o.detail for o in bearing if o.detail.startswith(_NOT_RUN)]
        words = f"{len(bearing) - len(left_out)} statistical tests on real runs are silent"
        if left_out:
            words += f", {len(left_out)} were {left_out[0]}"
        if bearing:
            words += f" (smallest p {min(o.p_value for o in bearing):.2g}, level {self.level:g})"
        tried = self.outcomes("uniformity", "features") if "uniformity" in self.tests else ()
        odd = [o.detail for o in tried if o.accuses]
        return words + (f"; but not all messages are uniform, {odd[0]}" if odd else "")

    def _against(self, who: str, bearing: Sequence[Outcome]) -> tuple[str, float] | None:
        """Evidence against a claim, and the probability of it where the claim holds."""
        accusing = [outcome for outcome in bearing if outcome.accuses]
        parts = [f"{o.test}, {o.detail} (p {o.p_value:.2g})" for o in accusing]
        probability = min((o.p_value for o in accusing), default=1.0)
        if who == _POOLED and self.recovery.explained:
            found = self.recovery
            parts.insert(
                0,
                f"linear algebra at p = 2^31-1 recovered {found.data:.0%} of the honest clients' "
                f"data and {found.models:.0%} of their models exactly ({found.elements} elements, "
                "24 features, 60 rows a segment, 8 rounds of h = 8)",
            )
            probability = 0.0
        if not parts:
            return None
        if who in (_SERVER, _POOLED) and not self.masked:
            parts += self._figures()
        return "; ".join(parts), probability

    def _figures(self) -> list[str]:
        """Exact information of the server of plain evaluation in a small field."""
        self.progress("exact figures of plain evaluation")
        code, server = small_code(5, 1, 1), Coalition(server=True)
        one = [exhaust(Toy(code, masked=False, honest=n), server) for n in (3, 2, 1)]
        two = exhaust(Toy(code, masked=False, honest=3, rounds=2), server)
        bits = ", ".join(f"{found.bits:.6e}" for found in one)
        return [
            f"exactly, at p = 5, K = T = 1, 1x1 blocks, uniform secrets, given the sums: {bits} "
            f"bits for three, two and one data holders, {two.bits:.6e} for three over two rounds; "
            f"the largest total variation between equal-sum secrets is {one[0].distance:g}, and "
            f"{two.distance:g} over two rounds"
        ]

    def shown(self) -> tuple[Shown, ...]:
        """What leaks outside any claim."""
        code, found = self.code, list(_card(self.made))
        if self._departs:
            return tuple(found)
        for clients in coalitions(self.trial):
            c = len(clients)
            if c == code.privacy:
                continue
            pooled = pool_shares(self.trial, clients, code.parties - 1)
            what = f"{pooled.combinations} of K = {code.segments} combinations of each other "
            what += f"client's segments{', the whole data' if pooled.data else ''}"
            what += ", and its models" if pooled.model else ", and nothing of its models"
            note = (
                "decoded exactly from a run's shares" if pooled.exact else "not as the theory says"
            )
            found.append(Shown(f"{c} clients", what, f"{note}; T = {code.privacy}"))
        if not self.recovery.explained:
            what = "no more than the sums and what they imply"
            note = "the attack that recovers everything from plain uploads finds no solution"
            found.append(Shown(f"server + {code.privacy} client(s)", what, note))
        return tuple(found)


def _words(check: Check) -> str:
    return check.detail


def _coalition(who: str, privacy: int) -> Coalition:
    """The first T clients, as far as they take part."""
    C = tuple(range(privacy))
    return {
        _CLIENTS: Coalition(clients=C),
        _UPLOADS: Coalition(uploads=C),
        _SERVER: Coalition(server=True),
        _POOLED: Coalition(server=True, clients=C),
    }[who]


__all__ = ["Exhaustion", "Report", "verify"]
