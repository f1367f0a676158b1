"""Verify the claims of a protocol: let verifiers examine each, and say what all evidence allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from securevfl.audit.beside.second_process import SecondProcess
from securevfl.audit.beside.time_limit import LIMIT, time_limit
from securevfl.audit.following.given import Given
from securevfl.audit.following.library import library_class
from securevfl.audit.following.sources import altered, altered_unseen
from securevfl.audit.games.on_runs import TESTS
from securevfl.audit.statistical import LEVEL
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import ClaimVerdict as ClaimVerdict
from securevfl.audit.verdicts import Evidence, Leakage, conclude
from securevfl.audit.verdicts import Report as Report
from securevfl.audit.verifiers.base import Verifier
from securevfl.audit.verifiers.declaration import AS_DECLARED
from securevfl.audit.verifiers.recovery import leaks_of_shares
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.whole_run import WholeRun
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.models.user_code import allow_options
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import Claim, link_claims
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_T = TypeVar("_T")

# Verifiers that do not ask for the run of the configuration itself.
_RUNS_OF_THEIR_OWN = frozenset(
    (
        "enumeration",
        "coupling",
        "games",
        "influence",
        "plaintext",
        "history",
        "between machines",
        "sealed links",
    )
)

# Verifiers that compare the loaded library with its files.
_AFTER_ALL = frozenset(("noise", "specification"))

#: What is judged where a protocol's claims cannot be read.
THE_CARD = Claim(Adversary(role="any party"), "features", "perfect", "claims that cannot be read")

NOT_COVERED = (
    "ideal randomness and private channels are supposed; with a keystream and sealed links the "
    "guarantee is computational",
    "parties follow the protocol: an active server or client is another claim",
    "how long a machine computes, and what else it leaks: times are those of a simulation",
    "what dL/dH says by itself",
    "what processes of organisations tell each other besides messages: beacons of how they stand",
    "the library's own code: states, draws and messages are held against what its parties do",
    "options, conditions, rows and rounds that were not run (see what was run)",
    "what measures and predictions in the clear tell, such as embeddings of test rows",
    "code that behaves otherwise where nobody watches: it is trusted to do in other runs what it "
    "did in these",
    "a server that knows the secret seed, from which secret choices follow in a simulation: claims "
    "that grant decoded sums promise nothing of the columns against it",
)


def verify(
    protocol: str | type[Protocol] = DEFAULT,
    data: VerticalDataset | DataSource | str = "digits",
    *,
    plain: bool = False,
    seed: int = 0,
    level: float = LEVEL,
    tests: Sequence[str] = tuple(TESTS),
    progress: Callable[[str], None] | None = None,
    whole: bool = True,
    limit: float = LIMIT,
    processes: int = 1,
    **options: Any,
) -> Report:
    """Check every claim of a protocol in a configuration.

    Every verifier that applies to a claim examines it (`securevfl.audit.verifiers.registry`), and
    the verdict is the strongest one that all evidence together allows. Of any protocol: recorded
    runs against its declared messages (the configuration itself, and settings in which parties are
    late, crash, are wrong or resumed), its traffic with other secrets, what the adversary was sent
    in the clear, whether a secret changes what it sees, the noise of its releases, and what its
    reductions suppose. Of protocols that share by a Lagrange
    code besides: the certificate of the proof at the K, T, N and p of the configuration, exhaustive
    enumeration of small instances, the bijection of the proof run on the real code, statistical
    games against real runs, the provenance of masks, and the attacks.

    Parameters
    ----------
    protocol : str or type of Protocol
    data : VerticalDataset, DataSource or str
        Fixes the parties and default K. The configuration itself is run on all of it, settings on
        some of its rows, and coded runs on small data sets of their own.
    plain : bool
        Verify the paper's evaluation, `masked=False`, and the claims as the paper makes them: the
        card of plain evaluation claims nothing against the server.
    seed : int
        Of what is not secret, and of the sampled subsets.
    level : float
        Failure probability of each test.
    tests : sequence of str
        Names in `securevfl.audit.games.on_runs.TESTS`; all if not given.
    progress : callable, optional
        Told what is being done.
    whole : bool
        Run the configuration itself as well, on all its rows and for all its rounds. Without it
        the runs are small, and what a protocol does on more rows or in later rounds is not looked
        at.
    limit : float
        Seconds that one verifier may take for one claim, and so may the making of the protocol and
        each of its words about itself. What takes longer COULD NOT BE CHECKED.
    processes : int
        With 2 a method of the library runs whole in a process beside this one, which takes about
        half the time on two idle cores. That process imports the library anew: a script that asks
        for it must not do so when it is imported itself (``if __name__ == "__main__":``).
    **options
        The protocol's own.

    Returns
    -------
    Report
        A protocol that cannot be made has one verdict, COULD NOT BE CHECKED.

    Raises
    ------
    ConfigurationError
        For options that cannot run, an entry point that is no verifier, or `plain` for a protocol
        that has no masks.
    """
    allow_options(options)
    cls = get_protocol(protocol) if isinstance(protocol, str) else protocol
    if plain:
        options |= _plain(cls)
    if isinstance(data, str):
        data = DataSource(data, {"seed": seed})
    dataset = data.load() if isinstance(data, DataSource) else data
    config = make_config(cls, options)
    given = Given.of(config, dataset, seed)
    try:
        with time_limit(limit):
            made = cls(config, dataset, seed=seed)
    except (KeyboardInterrupt, SecureVFLError):  # an option that cannot run is no verdict
        raise
    except BaseException as error:  # as in `judge`
        failure = Evidence("verify", "silent", f"making the protocol {_ended_in(error)}", "failure")
        return Report(
            cls.name, {"seed": seed}, (conclude(THE_CARD, [failure]),), (), NOT_COVERED, whole=False
        )
    verifiers = tuple(VERIFIERS.all().values())
    told = progress or (lambda words: None)
    beside: AbstractContextManager[SecondProcess | None] = nullcontext()
    if whole and processes > 1 and isinstance(protocol, str) and library_class(made) is not None:
        beside = SecondProcess(WholeRun(protocol, data, options, seed), told)
    with beside as itself:
        subject = Subject(
            made,
            seed=seed,
            level=level,
            tests=tests,
            progress=told,
            whole=whole,
            given=given,
            itself=itself,
        )
        stated, unread = _read(lambda: _claims(made, plain), limit)
        silent, _ = _read(lambda: not made.messages, limit)
        described, _ = _read(made.describe, limit)
        claims = (*(stated or ()), *[AS_DECLARED] * (not silent), *link_claims(True))
        found = _judged(claims, subject, verifiers, limit)
        leaks = tuple(_leaks(subject, limit))
    if unread:
        failure = Evidence("card", "silent", f"reading the claims {unread}", "failure")
        found = (conclude(THE_CARD, [failure]), *found)
    found = _unless_changed(claims, found)
    parameters = {**(described or {}), "seed": seed}
    return Report(cls.name, parameters, found, leaks, NOT_COVERED, tuple(subject.ran), whole)


def _plain(cls: type[Protocol]) -> dict[str, Any]:
    """The option of plain evaluation."""
    if "masked" not in cls.Config.model_fields:
        raise ConfigurationError(f"verify: {cls.name} has no plain evaluation; leave out plain")
    return {"masked": False}


def _unless_changed(
    claims: Sequence[Claim], found: tuple[ClaimVerdict, ...]
) -> tuple[ClaimVerdict, ...]:
    """The verdicts, or none on any claim where what judged is not the verifier."""
    changed = [n for n in altered("securevfl.audit.") if n.startswith("securevfl.audit.")]
    changed += altered_unseen()
    if not changed:
        return found
    text = f"the verifier, or what it compares with, was changed: {', '.join(changed[:6])}"
    failure = Evidence("verify", "silent", text, "failure")
    # Named here: the judge (`conclude`) may be what was changed.
    return tuple(ClaimVerdict(one, "COULD NOT BE CHECKED", (failure,)) for one in claims)


def judge(
    claim: Claim, subject: Subject, verifiers: Sequence[Verifier], *, limit: float = LIMIT
) -> ClaimVerdict:
    """Verdict on a claim by all verifiers that apply to it; an error of one is evidence, too."""
    return _judged((claim,), subject, verifiers, limit)[0]


def _judged(
    claims: Sequence[Claim], subject: Subject, verifiers: Sequence[Verifier], limit: float
) -> tuple[ClaimVerdict, ...]:
    """Verdicts on claims, one after the other.

    While the configuration runs in a process beside, verifiers go first that do not ask for it.
    Those that compare the library with its files go last, so that they look once, after all runs.
    """
    order = [(place, verifier) for place in range(len(claims)) for verifier in verifiers]
    if subject.itself is not None:
        order.sort(key=lambda one: one[1].name not in _RUNS_OF_THEIR_OWN)
    order.sort(key=lambda one: one[1].name in _AFTER_ALL)
    evidence: dict[tuple[int, str], list[Evidence]] = {}
    for place, verifier in order:
        examined = _examined(claims[place], subject, verifier, limit)
        evidence[place, verifier.name] = examined
    return tuple(
        _concluded(claim, [one for v in verifiers for one in evidence[place, v.name]])
        for place, claim in enumerate(claims)
    )


def _examined(claim: Claim, subject: Subject, verifier: Verifier, limit: float) -> list[Evidence]:
    evidence: list[Evidence] = []
    try:
        with time_limit(limit):
            if verifier.applies(claim, subject.protocol):
                examine = verifier.examine
                evidence += examine(claim, subject, seed=subject.seed, level=subject.level)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the protocol or the verifier raises is no verdict
        text = f"{verifier.name} {_ended_in(error)}"
        evidence.append(Evidence(verifier.name, "silent", text, "failure"))
    return evidence


def _concluded(claim: Claim, evidence: list[Evidence]) -> ClaimVerdict:
    if claim.strength == "none":
        evidence.append(Evidence("card", "silent", f"nothing is claimed: {claim.reason}"))
    elif not evidence:
        text = f"no verifier examines a {claim.strength} claim about {claim.asset} against "
        evidence.append(Evidence("none", "silent", text + claim.who))
    return conclude(claim, evidence)


def _read(what: Callable[[], _T], limit: float) -> tuple[_T | None, str]:
    """A protocol's word about itself, or none and the error in which it ended."""
    try:
        with time_limit(limit):
            return what(), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in `judge`
        return None, _ended_in(error)


def _ended_in(error: BaseException) -> str:
    # Not every error of foreign code has a text form.
    try:
        return f"ended in {type(error).__name__}: {error}"
    except Exception:
        return f"ended in {type(error).__name__}"


def _claims(made: Protocol, plain: bool) -> tuple[Claim, ...]:
    """The card's claims; under `plain` the paper's come first and replace those that say none."""
    if not plain:
        return made.claims
    stated = {(claim.against, claim.asset) for claim in made.paper_claims}
    rest = [claim for claim in made.claims if (claim.against, claim.asset) not in stated]
    return (*made.paper_claims, *rest)


def _leaks(subject: Subject, limit: float) -> Iterator[Leakage]:
    """Leakage by role, as the card says it, and what coalitions decode of a coded protocol."""
    made = subject.protocol
    seen, _ = _read(lambda: dict(made.card.sees), limit)
    for who, what in (seen or {}).items():
        yield Leakage(who, what, "the card")
    if isinstance(made, CodedProtocol):
        decoded, error = _read(lambda: tuple(leaks_of_shares(subject)), limit)
        yield from decoded or ()
        if error:
            yield Leakage("coalitions", "could not be computed", error)


__all__ = ["Report", "judge", "verify"]
