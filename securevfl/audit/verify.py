"""Verification of a protocol's claims: verifiers examine each, and evidence gives verdicts."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl._version import __version__
from securevfl.audit.child import ChildEndedError, in_child
from securevfl.audit.proved import leaks, proved_report
from securevfl.audit.statistical import LEVEL
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import ClaimVerdict as ClaimVerdict
from securevfl.audit.verdicts import Evidence, conclude
from securevfl.audit.verdicts import Report as Report
from securevfl.audit.verifiers.base import Verifier
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.data.source import DataSource, dataset_of
from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.models.user_code import allow_options
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols, get_protocol, make_config
from securevfl.verified.participants import Provable

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

#: What is judged where a protocol's claims cannot be read.
THE_CARD = Claim(Adversary(role="any party"), "features", "perfect", "claims that cannot be read")


def verify(
    protocol: str | type[Protocol] = DEFAULT,
    data: VerticalDataset | DataSource | str = "digits",
    *,
    plain: bool = False,
    seed: int = 0,
    level: float = LEVEL,
    progress: Callable[[str], None] | None = None,
    limit: float | None = None,
    keep: Path | None = None,
    **options: Any,
) -> Report:
    """Check every claim of a protocol in a configuration.

    A protocol that is written with protected values (`securevfl.verified`) is traced and proved;
    its certificate is checked by another process. The verdict on a claim is the weakest of all
    coalitions that it names: "PROVED", "DP", "NOT PROTECTED", "NOT PROVED" or "VIOLATED". Verifiers
    of installed packages (`securevfl.audit.verifiers.registry`) may add evidence; evidence against
    a claim makes it "VIOLATED". Of any other protocol nothing is proved.

    Parameters
    ----------
    protocol : str or type of Protocol
        Name of a protocol, or its class. Of a class that no installed package declares under its
        name, nothing can be proved.
    data : VerticalDataset, DataSource or str
        Data set, which determines the parties and the default K. The trace uses a few rows of its
        own.
    plain : bool
        Whether to verify the paper's unmasked evaluation, `masked=False`, and the paper's claims;
        the card of plain evaluation claims nothing against the server.
    seed : int
        Seed of public choices and of sampled subsets.
    level : float
        Probability with which each test may accuse a claim that holds.
    progress : callable, optional
        Called with a text on the current activity.
    limit : float, optional
        Seconds after which the verification ends with COULD NOT BE CHECKED. With a limit it runs in
        a child process, which imports the library: the protocol must be a name or a top-level class
        of a module, and a script must guard the call by ``if __name__ == "__main__":``. Without a
        limit it runs in this process.
    keep : Path, optional
        File of the verdicts of finished schedules. A verification that was stopped, or reached its
        limit, goes on from there, and removes it at its end.
    **options
        Options of the protocol.

    Returns
    -------
    Report
        All verdicts. For a protocol that cannot be created there is one, COULD NOT BE CHECKED.

    Raises
    ------
    ConfigurationError
        For impossible options, data that cannot be loaded, an entry point that is no verifier,
        `plain` for a protocol without masks, or a limit for a protocol that another process cannot
        import.
    SecureVFLError
        If the undisturbed run of the trace ends in an error.
    """
    told = progress or (lambda words: None)
    if limit is not None:
        given = {"plain": plain, "seed": seed, "level": level, "keep": keep}
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
    dataset = dataset_of("verify", data)
    config = make_config(cls, options)
    try:
        made = cls(config, dataset, seed=seed)
    except SecureVFLError:  # an option that cannot run is no verdict
        raise
    except Exception as error:
        return _unchecked(cls.name, seed, f"making the protocol {_ended_in(error)}")
    try:
        claims, shown = _claims(made, plain), leaks(made)
    except Exception as error:
        return _unchecked(cls.name, seed, f"reading the card {_ended_in(error)}")
    subject = Subject(made, seed=seed, level=level, progress=told)
    verifiers = tuple(VERIFIERS.all().values())
    if issubclass(cls, Provable):
        if find_protocols().get(cls.name) is not cls:
            raise ConfigurationError(
                f"a proof's trace finds the protocol by its name, {cls.name!r}, which is not this "
                "class's. Declare the class in pyproject.toml, [project.entry-points."
                "'securevfl.protocols'], and install the package (docs/own-protocol.md)"
            )
        return proved_report(
            made,
            claims,
            options,
            seed=seed,
            progress=told,
            library=library(),
            keep=keep,
            examine=lambda claim: examine(claim, subject, verifiers),
        )
    why = f"{cls.name} is not written with protected values, so nothing is proved of it"
    unread = Evidence("proof", "silent", f"{why}: docs/own-protocol.md", "gap")
    return Report(
        cls.name,
        {**made.describe(), "seed": seed},
        tuple(conclude(one, [unread, *examine(one, subject, verifiers)]) for one in claims),
        shown,
        library=library(),
    )


def _told(
    protocol: str | type[Protocol],
    data: Any,
    options: dict[str, Any],
    progress: Callable[[str], None],
) -> Report:
    """Report of `verify`, without its time limit: the child process calls this one."""
    return verify(protocol, data, progress=progress, **options)


def _unchecked(name: str, seed: int, why: str) -> Report:
    """Report on a protocol, by name, of which nothing could be checked, and `why`."""
    verdict = conclude(THE_CARD, [Evidence("verify", "silent", why, "failure")])
    return Report(name, {"seed": seed}, (verdict,), library=library())


@functools.cache
def library() -> str:
    """Version of the library, and SHA-256 of the names and contents of all its modules."""
    root, made = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        made.update(f"{path.relative_to(root).as_posix()} ".encode())
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return f"securevfl {__version__}, sha256 {made.hexdigest()}"


def _plain(cls: type[Protocol]) -> dict[str, Any]:
    """Option that turns masks off; ConfigurationError for a protocol without it."""
    if "masked" not in cls.Config.model_fields:
        raise ConfigurationError(f"verify: {cls.name} has no plain evaluation; leave out plain")
    return {"masked": False}


def examine(claim: Claim, subject: Subject, verifiers: Sequence[Verifier]) -> list[Evidence]:
    """Evidence of all verifiers that apply to a claim; an error of one counts as evidence."""
    evidence: list[Evidence] = []
    for verifier in verifiers:
        try:
            if verifier.applies(claim, subject.protocol):
                found = verifier.examine(claim, subject, seed=subject.seed, level=subject.level)
                evidence += found
        except Exception as error:
            text = f"{verifier.name} {_ended_in(error)}"
            evidence.append(Evidence(verifier.name, "silent", text, "failure"))
    return evidence


def _ended_in(error: Exception) -> str:
    return f"ended in {type(error).__name__}: {error}"


def _claims(made: Protocol, plain: bool) -> tuple[Claim, ...]:
    """The card's claims; under `plain` the paper's, then the card's on what these do not claim.

    A claim is in place of another with the same adversary and asset.
    """
    if not plain:
        return made.claims
    stated = {(claim.against, claim.asset) for claim in made.paper_claims}
    rest = [claim for claim in made.claims if (claim.against, claim.asset) not in stated]
    return (*made.paper_claims, *rest)


__all__ = ["Report", "verify"]
