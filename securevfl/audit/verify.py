"""Verify the claims of a protocol: let verifiers examine each, and say what all evidence allows."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from securevfl._version import __version__
from securevfl.audit.child import ChildEndedError, in_child
from securevfl.audit.proved import proved_report
from securevfl.audit.statistical import LEVEL
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import ClaimVerdict as ClaimVerdict
from securevfl.audit.verdicts import Evidence, Leakage, conclude
from securevfl.audit.verdicts import Report as Report
from securevfl.audit.verifiers.base import Verifier
from securevfl.audit.verifiers.declaration import AS_DECLARED
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verifiers.released_sums import ReleasedSums
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.models.user_code import allow_options
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.verified.participants import Provable

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_T = TypeVar("_T")

#: What is judged where a protocol's claims cannot be read.
THE_CARD = Claim(Adversary(role="any party"), "features", "perfect", "claims that cannot be read")

NOT_COVERED = (
    "ideal randomness and private channels are supposed; with a keystream and sealed links the "
    "guarantee is computational",
    "parties follow the protocol: an active server or client is another claim",
    "how long a machine computes, and what else it leaks: times are those of a simulation",
    "what dL/dH says by itself",
    "what processes of organisations tell each other besides messages: beacons of how they stand",
    "the library, Python and the machine, which are trusted: their tests are the library's own",
    "options, conditions, rows and rounds that were not run (see what was run)",
    "what measures and predictions in the clear tell, such as embeddings of test rows",
    "code that hides: its author may err, and is trusted not to lie",
    "links between parties: sealed, contents are hidden from outsiders by their ciphers",
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
    progress: Callable[[str], None] | None = None,
    whole: bool = True,
    limit: float | None = None,
    **options: Any,
) -> Report:
    """Check every claim of a protocol in a configuration.

    A protocol that is written with protected values (`securevfl.verified`) is traced and proved;
    its certificate is checked by another process. The verdict on a claim is the weakest of all
    coalitions that it is about: "PROVED", "DP", "NOT PROTECTED", "NOT PROVED" or "VIOLATED".

    Of any other protocol every verifier that applies to a claim examines it
    (`securevfl.audit.verifiers.registry`), and the verdict is the strongest one that all evidence
    together allows. These are recorded
    runs against its declared messages (the configuration itself, and settings in which parties are
    late, crash, are wrong or resumed), its traffic with other secrets, what the adversary was sent
    in the clear, and whether a secret changes what it sees. None of them proves anything: the
    strongest verdict is then NO VIOLATION FOUND.

    Parameters
    ----------
    protocol : str or type of Protocol
    data : VerticalDataset, DataSource or str
        Fixes the parties and default K. The configuration itself is run on all of it, settings on
        some of its rows.
    plain : bool
        Verify the paper's evaluation, `masked=False`, and the claims as the paper makes them: the
        card of plain evaluation claims nothing against the server.
    seed : int
        Of what is not secret, and of the sampled subsets.
    level : float
        Failure probability of each test.
    progress : callable, optional
        Told what is being done.
    whole : bool
        Run the configuration itself as well, on all its rows and for all its rounds. Without it
        the runs are small, and what a protocol does on more rows or in later rounds is not looked
        at.
    limit : float, optional
        Seconds after which the verification is ended and nothing COULD BE CHECKED. It is made in a
        child process then, which imports the library anew: the protocol must be a name or a class
        at the top of a module, and a script that asks for it must not do so when it is imported
        (``if __name__ == "__main__":``). Without a limit it is made in this process.
    **options
        The protocol's own.

    Returns
    -------
    Report
        A protocol that cannot be made has one verdict, COULD NOT BE CHECKED.

    Raises
    ------
    ConfigurationError
        For options that cannot run, an entry point that is no verifier, `plain` for a protocol
        that has no masks, or a limit for one that no other process can import.
    """
    told = progress or (lambda words: None)
    if limit is not None:
        given = {"plain": plain, "seed": seed, "level": level, "whole": whole}
        work = partial(_told, protocol, data, {**given, **options})
        try:
            report: Report = in_child(work, limit, told)
        except ChildEndedError as error:
            name = protocol if isinstance(protocol, str) else protocol.name
            return _unchecked(name, seed, f"the verification ended: {error}")
        return report
    allow_options(options)
    cls = get_protocol(protocol) if isinstance(protocol, str) else protocol
    if plain:
        options |= _plain(cls)
    if isinstance(data, str):
        data = DataSource(data, {"seed": seed})
    dataset = data.load() if isinstance(data, DataSource) else data
    config = make_config(cls, options)
    try:
        made = cls(config, dataset, seed=seed)
    except (KeyboardInterrupt, SecureVFLError):  # an option that cannot run is no verdict
        raise
    except BaseException as error:  # as in `judge`
        return _unchecked(cls.name, seed, f"making the protocol {_ended_in(error)}")
    if issubclass(cls, Provable):
        return proved_report(
            made,
            _claims(made, plain),
            options,
            seed=seed,
            progress=told,
            library=library(),
            elsewhere=lambda claim: judge(
                claim,
                Subject(made, seed=seed, level=level, progress=told, whole=whole),
                (ReleasedSums(),),  # what a view tells is proved; how often rows are used is not
            ),
        )
    subject = Subject(made, seed=seed, level=level, progress=told, whole=whole)
    stated, unread = _read(lambda: _claims(made, plain))
    silent, _ = _read(lambda: not made.messages)
    described, _ = _read(made.describe)
    claims = (*(stated or ()), *[AS_DECLARED] * (not silent))
    verifiers = tuple(VERIFIERS.all().values())
    found = tuple(judge(claim, subject, verifiers) for claim in claims)
    if unread:
        failure = Evidence("card", "silent", f"reading the claims {unread}", "failure")
        found = (conclude(THE_CARD, [failure]), *found)
    return Report(
        cls.name,
        {**(described or {}), "seed": seed},
        found,
        _leaks(subject),
        NOT_COVERED,
        tuple(subject.ran),
        whole,
        library(),
    )


def _told(
    protocol: str | type[Protocol],
    data: Any,
    options: dict[str, Any],
    progress: Callable[[str], None],
) -> Report:
    """`verify`, as the child process calls it."""
    return verify(protocol, data, progress=progress, **options)


def _unchecked(name: str, seed: int, why: str) -> Report:
    """Report of a protocol of which nothing could be checked."""
    verdict = conclude(THE_CARD, [Evidence("verify", "silent", why, "failure")])
    return Report(name, {"seed": seed}, (verdict,), (), NOT_COVERED, (), False, library())


@functools.cache
def library() -> str:
    """Version of the library, and SHA-256 of all its modules by name and content."""
    root, made = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        made.update(f"{path.relative_to(root).as_posix()} ".encode())
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return f"securevfl {__version__}, sha256 {made.hexdigest()}"


def _plain(cls: type[Protocol]) -> dict[str, Any]:
    """The option of plain evaluation."""
    if "masked" not in cls.Config.model_fields:
        raise ConfigurationError(f"verify: {cls.name} has no plain evaluation; leave out plain")
    return {"masked": False}


def judge(claim: Claim, subject: Subject, verifiers: Sequence[Verifier]) -> ClaimVerdict:
    """Verdict on a claim by all verifiers that apply to it; an error of one is evidence, too."""
    evidence: list[Evidence] = []
    for verifier in verifiers:
        evidence += _examined(claim, subject, verifier)
    return _concluded(claim, evidence)


def _examined(claim: Claim, subject: Subject, verifier: Verifier) -> list[Evidence]:
    evidence: list[Evidence] = []
    try:
        if verifier.applies(claim, subject.protocol):
            evidence += verifier.examine(claim, subject, seed=subject.seed, level=subject.level)
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


def _read(what: Callable[[], _T]) -> tuple[_T | None, str]:
    """A protocol's word about itself, or none and the error in which it ended."""
    try:
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


def _leaks(subject: Subject) -> tuple[Leakage, ...]:
    """Leakage by role, as the card says it."""
    seen, _ = _read(lambda: dict(subject.protocol.card.sees))
    return tuple(Leakage(who, what, "the card") for who, what in (seen or {}).items())


__all__ = ["Report", "judge", "verify"]
