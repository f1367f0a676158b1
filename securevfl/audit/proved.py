"""Verdicts on a card's claims from proofs for the coalitions that each claim names.

A proof concerns a coalition and its view (`securevfl.verified`); a card's claim concerns an asset
and an adversary. This module maps adversaries to coalitions, and assets to inputs, by their names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from securevfl.audit.verdicts import (
    ClaimVerdict,
    Evidence,
    Leakage,
    Report,
    Verdict,
    conclude,
)
from securevfl.engine.network import SERVER
from securevfl.errors import SecureVFLError
from securevfl.models.user_code import OPTIONS as OWN_CODE
from securevfl.models.user_code import named
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import SUMS, Claim, Guarantee, rounded_up
from securevfl.verified.costs import costs
from securevfl.verified.trace import name_of
from securevfl.verified.verdicts import who

if TYPE_CHECKING:
    from securevfl.protocols.base.protocol import Protocol
    from securevfl.verified.trace import Node, Output, Trace
    from securevfl.verified.traced.proofs import Traced
    from securevfl.verified.verdicts import Judge
    from securevfl.verified.verdicts import Verdict as Proved

#: Assets by the first words of names that parties give their inputs; any other may hold all.
ASSETS = {"columns": "features", "labels": "labels"} | dict.fromkeys(
    ("network", "centre", "top", "optimizer", "chance"), "model"
)
#: Hypotheses of a proof that a claim without computational bounds does not make by itself.
_BOUNDED = ("ideal PRF", "key agreement", "ideal encryption")
_INPUTS = Mapping[tuple[int, str], Iterable[str]]  # assets by an input's owner and name
_OF_STRENGTH = ("perfect", "computational", "statistical", "differential", "none")
_LEAST_BUDGET = 0.25
_CLOSE = 1.001  # relative error of an epsilon, by two ways to compose releases
_MOST_NAMED = 4  # outputs in the words of what a claim is given
_DECODED = re.compile(r"sums?( \d+)?(, segment \d+)?")  # outputs that "decoded sums" grants
_WORST: tuple[Verdict, ...] = ("VIOLATED", "NOT PROVED", "NOT PROTECTED", "DP", "PROVED")


def coalitions_against(
    adversary: Adversary,
    there: Iterable[frozenset[int]],
    roles: Mapping[str, Sequence[int]],
    threshold: int,
    *,
    each: bool = False,
) -> list[frozenset[int]]:
    """Coalitions of a proof that a claim's adversary covers.

    Empty for outsiders, malicious adversaries, and those that see single uploads.

    Parameters
    ----------
    adversary : Adversary
        Adversary; "T" means `threshold`, "N - 1" all clients but one.
    there : iterable of frozenset
        Coalitions with a verdict.
    roles : mapping
        Party numbers of each role, by its name. An adversary with a role in the plural is all
        parties that have it.
    threshold : int
        Largest number of colluding clients.
    each : bool
        Whether a plural role that all clients have stands for each single client too, as in claims
        of strength "none": what one client receives unprotected, the role receives.
    """
    if adversary.behaviour != "honest-but-curious" or adversary.uploads:
        return []
    roles = {name.replace("_", " "): numbers for name, numbers in roles.items()}
    clients = set(roles.get("client", ()))
    sizes = _sizes(adversary.clients, len(clients), threshold)
    members = _of_role(adversary.role, roles, each=each)
    barred = set(roles.get(adversary.without, ()))
    found = []
    for some in there:
        others = [some - one for one in members if one <= some]
        fits = any(
            (SERVER in rest) == adversary.server and len(rest - {SERVER}) in sizes
            for rest in others
        )
        if fits and not barred & some:
            found.append(some)
    return found


def untraced(
    adversary: Adversary,
    there: Iterable[frozenset[int]],
    roles: Mapping[str, Sequence[int]],
    threshold: int,
) -> frozenset[int] | None:
    """First coalition of a claim's adversary without a verdict in `there`; None if all have one.

    `roles` has the numbers of the parties of each role; `threshold` limits the colluding clients.
    """
    decided = set(there)
    return next((one for one in _meant(adversary, roles, threshold) if one not in decided), None)


def _meant(
    adversary: Adversary, roles: Mapping[str, Sequence[int]], threshold: int
) -> Iterator[frozenset[int]]:
    """Coalitions (sets of numbers) of the `roles` that an adversary names, T = `threshold`."""
    roles = {name.replace("_", " "): numbers for name, numbers in roles.items()}
    barred = set(roles.get(adversary.without, ()))
    clients = sorted(set(roles.get("client", ())) - barred)
    server = {SERVER} if adversary.server else set()
    for members in _of_role(adversary.role, roles):
        others = [n for n in clients if n not in members]
        sizes = _sizes(adversary.clients, len(roles.get("client", ())), threshold)
        for size in sizes if not members & barred else ():
            for some in itertools.combinations(others, size):
                yield members | server | frozenset(some)


def _sizes(count: int | str, clients: int, threshold: int) -> range:
    """Numbers of colluding clients: k for an integer k, 1 to T - j for "T - j", N - j for "N - j".

    `threshold` is T, `clients` N. Empty for any other text.
    """
    if isinstance(count, int):
        return range(count, count + 1)
    letter, _, less = count.partition(" - ")
    if letter not in ("T", "N"):
        return range(0)
    most = (threshold if letter == "T" else clients) - int(less or 0)
    return range(1, most + 1) if letter == "T" else range(most, most + 1)


def _of_role(
    role: str, roles: Mapping[str, Sequence[int]], *, each: bool = False
) -> list[frozenset[int]]:
    """Sets of parties that a role's name means: each party of it, or all if it is in the plural.

    One empty set for the name ""; no set for an unknown name. `each`: see `coalitions_against`.
    """
    if not role:
        return [frozenset()]
    if role in roles:
        return [frozenset((n,)) for n in roles[role]]
    plurals = {form: one for one in roles for form in (f"{one}s", f"{one} parties", _plural(one))}
    members = frozenset(roles[plurals[role]]) if role in plurals else frozenset()
    if each and members == frozenset(roles.get("client", ())):
        return [frozenset((n,)) for n in members]
    return [members] if members else []


def _plural(role: str) -> str:
    return f"{role[:-1]}ies" if role.endswith("y") else f"{role}s"


def assets_in(
    world: Trace,
    outputs: Iterable[Output],
    coalition: frozenset[int],
    known: Iterable[Output] = (),
    inputs: _INPUTS = MappingProxyType({}),
) -> set[str]:
    """Assets of parties outside `coalition` on which outputs of the trace depend.

    A dependence only through noise or `known` outputs does not count. The assets of an input follow
    from its name, and from `inputs` (`Traced.assets`).
    """
    nodes = [output.node for output in outputs]
    return _assets_of(nodes, coalition, {one.node.number for one in known}, inputs)


def _assets_of(
    nodes: Iterable[Node], coalition: frozenset[int], known: set[int], inputs: _INPUTS
) -> set[str]:
    todo = list(nodes)
    seen = known - {one.number for one in todo}
    found: set[str] = set()
    while todo:
        node = todo.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if node.op != "release":
            todo.extend(node.args)
        if node.op == "secret" and node.owner not in coalition:
            named = {ASSETS[word] for word in node.name.split() if word in ASSETS}
            found |= named or set(ASSETS.values())  # a name such as "train columns", or any other
            if node.owner is not None:
                found.update(inputs.get((node.owner, node.name), ()))  # labels may be named columns
    return found


def judged_by_proof(
    claim: Claim,
    found: Sequence[Proved],
    traces: Sequence[tuple[Sequence[Proved], Trace]],
    *,
    missing: frozenset[int] | None = None,
    inputs: _INPUTS = MappingProxyType({}),
    promised: Sequence[Guarantee] = (),
    later: tuple[Judge, Sequence[Guarantee]] | None = None,
) -> ClaimVerdict:
    """The weakest verdict of the coalitions that a claim is about; NOT TESTED if there are none.

    If an output belongs to one party, such as an embedding that is sent unprotected, an asset on
    which it depends is NOT PROTECTED, unless the claim grants it (`Claim.given`).

    Parameters
    ----------
    claim : Claim
        Claim to judge.
    found : sequence of Verdict
        Verdicts on these coalitions, for all schedules.
    traces : sequence of (sequence of Verdict, Trace)
        For each schedule's trace, the verdicts on all coalitions, because outputs differ between
        traces.
    missing : frozenset of int, optional
        A coalition that the claim is about, and that was not decided: it is NOT PROVED.
    inputs : mapping
        Assets that inputs hold, by owner and name (`Traced.assets`).
    promised : sequence of Guarantee
        Guarantees of the claim for the traced run; releases with larger epsilon are NOT PROVED.
    later : (Judge, sequence of Guarantee), optional
        A run of more rounds, in which rows are released again, and the claim's guarantees of it.
    """
    if not found:
        text = f"no coalition that was traced is {claim.who}"
        return ClaimVerdict(claim, "NOT TESTED", (Evidence("proof", "silent", text),))
    words, dear = [], list[str]()
    for one in found:
        word = _weakest(claim, one, traces, inputs)
        over = ""
        if claim.strength == "differential" and word in ("PROVED", "DP"):
            over = _without_noise(claim, one, traces, inputs)
            over = over or _dearer(claim, one, traces, inputs, promised)
            if later is not None and not over and word == "DP":
                again = later[0].decide(one.coalition)
                over = _dearer(claim, again, [([again], later[0].world)], inputs, later[1])
        if claim.asset == "model" and word == "DP":
            over = over or _in_all_rows(one, traces, inputs)
        words.append("NOT PROVED" if over else word)
        dear.append(over)
    evidence = []
    for one, word, over in zip(found, words, dear, strict=True):
        given = f", given {', '.join(dict.fromkeys(one.outputs))}" if one.outputs else ""
        text = f"{one.claim}: {one.scope}{given}" + (f". {one.text}" if one.text else "") + over
        effect = "accuses" if word == "VIOLATED" else "supports"
        bearing = "proof" if word in ("PROVED", "DP") else "gap"
        evidence.append(Evidence("proof", effect, text, bearing))  # type: ignore[arg-type]
    if missing is not None and claim.strength != "none":
        words.append("NOT PROVED")
        text = f"{who(missing)}: not among the coalitions that the protocol names (`coalitions`)"
        evidence.append(Evidence("proof", "silent", text, "gap"))
    sure = [one for one in found if one.sure]
    if "DP" in words and claim.strength == "differential" and not claim.guarantees:
        text = "whether its words promise what the releases cost: it has no guarantees"
        evidence.append(Evidence("proof", "silent", f"a reader must judge: {text}", "proof"))
    for what, name in (("a reader must judge", "judge"), ("assumed", "assumptions")):
        said = dict.fromkeys(text for one in sure for text in getattr(one, name))
        evidence += [Evidence("proof", "silent", f"{what}: {text}", "proof") for text in said]
    worst = min(words, key=_WORST.index)
    return ClaimVerdict(_with_hypotheses(claim, sure, traces, inputs), worst, tuple(evidence))


def _with_hypotheses(
    claim: Claim,
    sure: Sequence[Proved],
    traces: Sequence[tuple[Sequence[Proved], Trace]],
    inputs: _INPUTS,
) -> Claim:
    """The claim, with what its proof assumes or reveals beyond it added to `Claim.given`.

    These are ideal primitives, for a claim without computational bounds, and outputs that depend on
    its asset.
    """
    more = []
    if claim.strength in ("perfect", "statistical"):
        used = [text for one in sure for text in one.assumptions]
        prf = any(one.of.prf for one in sure)  # without streams an agreed key hides nothing
        more = [
            name
            for name in _BOUNDED
            if any(text.startswith(name) for text in used) and (prf or name != "key agreement")
        ]
    if claim.strength not in ("none", "undetermined", "differential"):
        told = dict.fromkeys(
            _of_kind(output.name)
            for one in sure
            for _, world in traces
            for output in _told(claim, frozenset(one.coalition), world, inputs)
        )
        names = list(told)[:_MOST_NAMED] + ["others"] * (len(told) > _MOST_NAMED)
        if told:
            more.append(f"declared outputs ({', '.join(names)})")
        elif SUMS not in claim.given and any(one.outputs for one in sure):
            more.append("declared outputs")
    return replace(claim, given=(*claim.given, *more)) if more else claim


def _told(claim: Claim, coalition: frozenset[int], world: Trace, inputs: _INPUTS) -> list[Output]:
    """Outputs to a coalition that depend on a claim's asset, and that the claim does not name.

    Outputs that belong to one party are left out: they are granted by name, or the asset is
    NOT PROTECTED.
    """
    given = [output for output in world.outputs_of(coalition) if not output.alone]
    sums = [one for one in given if SUMS in claim.given and _DECODED.fullmatch(one.name)]
    return [
        output
        for output in given
        if output not in sums
        and _of_kind(output.name) not in claim.given
        and claim.asset in assets_in(world, [output], coalition, sums, inputs)
    ]


def _without_noise(
    claim: Claim,
    whole: Proved,
    traces: Sequence[tuple[Sequence[Proved], Trace]],
    inputs: _INPUTS,
) -> str:
    """Sentence on an output that depends on a claim's asset without noise; "" if there is none."""
    for _, world in traces:
        for output in _told(claim, frozenset(whole.coalition), world, inputs):
            return f". The output {output.name} depends on {claim.asset} without noise"
    return ""


def _of_kind(name: str) -> str:
    """Name of an output without its numbers, such as those of rounds."""
    return re.sub(r"(( of)? |\b)\d+\b:?", "", name).strip()


def _dearer(
    claim: Claim,
    whole: Proved,
    traces: Sequence[tuple[Sequence[Proved], Trace]],
    inputs: _INPUTS,
    promised: Sequence[Guarantee],
) -> str:
    """Sentence on releases that cost a larger (epsilon, delta) than a claim promises; else ""."""
    for world, own in _released(claim.asset, whole, traces if promised else (), inputs):
        some = whole.coalition
        every = [(one, "The releases", "in this run") for one in costs(world, own, some)]
        single = [(one, "A release", "by itself") for n in own for one in costs(world, (n,), some)]
        for (party, epsilon, delta, what), which, where in every + single:
            # A cost with delta = 0, of labels, is that of the guarantee with delta = 0, if any is.
            fit = [g for g in promised if (g.delta == 0) == (delta == 0)] or promised
            most = [
                (g.total_epsilon if which == "The releases" else g.epsilon, g.delta) for g in fit
            ]
            if not any(epsilon <= e * _CLOSE and delta <= d for e, d in most):
                said = " or ".join(f"({rounded_up(e)}, {d:g})" for e, d in most)
                return (
                    f". {which} of {name_of(party)} cost{'s' * (which == 'A release')} "
                    f"({epsilon:.4g}, {delta:g}) for one {what} {where}, and the claim promises "
                    f"{said}"
                )
    return ""


def _in_all_rows(
    whole: Proved, traces: Sequence[tuple[Sequence[Proved], Trace]], inputs: _INPUTS
) -> str:
    """Sentence on a release that depends on a model, which noise does not hide; else "".

    The noise hides one row, and a model depends on all rows.
    """
    for world, own in _released("model", whole, traces, inputs):
        if own:
            return (
                f". {world.nodes[own[0]].name} depends on a model: the noise hides one row, and a "
                "model shows in all rows"
            )
    return ""


def _released(
    asset: str,
    whole: Proved,
    traces: Sequence[tuple[Sequence[Proved], Trace]],
    inputs: _INPUTS,
) -> Iterator[tuple[Trace, list[int]]]:
    """Each trace, with node numbers of releases to `whole`'s coalition that depend on `asset`."""
    for verdicts, world in traces:
        for one in verdicts:
            if one.coalition == whole.coalition:
                nodes = [world.nodes[step.node] for step in one.steps if step.what == "release"]
                some = frozenset(one.coalition)
                yield world, [n.number for n in nodes
                              if asset in _assets_of(n.args, some, set(), inputs)]  # fmt: skip


def _weakest(
    claim: Claim,
    whole: Proved,
    traces: Sequence[tuple[Sequence[Proved], Trace]],
    inputs: _INPUTS,
) -> Verdict:
    """Weakest of the verdicts on `whole`'s coalition over all traces, each with its outputs."""
    words: list[Verdict] = [
        _word(claim, one, world, inputs)
        for verdicts, world in traces
        for one in verdicts
        if one.coalition == whole.coalition
    ]
    return min(words, key=_WORST.index, default="NOT PROVED")


def _granted(claim: Claim, name: str) -> bool:
    """Whether a claim grants the output "X of N" of one party N by the name X."""
    return any(name == given or name.startswith(f"{given} of ") for given in claim.given)


def _word(claim: Claim, one: Proved, world: Trace, inputs: _INPUTS) -> Verdict:
    coalition = frozenset(one.coalition)
    if one.verdict not in _WORST:
        return "NOT PROVED"
    if claim.strength == "none":
        return "NOT PROTECTED"
    given = world.outputs_of(coalition)
    alone = [
        output for output in given if output.name in one.clear and not _granted(claim, output.name)
    ]
    known = [output for output in given if not output.alone]
    own = assets_in(world, alone, coalition, known, inputs)
    if claim.asset in own:
        return "NOT PROTECTED"
    if one.verdict == "NOT PROTECTED":  # of another asset; nothing beside is shown
        return "DP" if one.releases else "PROVED"
    word: Verdict = one.verdict
    return word


def proved_report(
    made: Any,
    claims: Sequence[Claim],
    options: Mapping[str, Any],
    *,
    seed: int,
    progress: Callable[[str], None],
    library: str,
    keep: Path | None,
    examine: Callable[[Claim], list[Evidence]],
) -> Report:
    """Prove a protocol's claims, and report what was proved of each.

    Parameters
    ----------
    made : Protocol and Provable
        Configured protocol, whose number of parties the trace uses.
    claims : sequence of Claim
        Claims of its card, or of its paper.
    options : mapping
        Options of the protocol, with the trace's sizes.
    seed : int
        Seed of public choices.
    progress : callable
        Called with a text on the current activity.
    library : str
        Version and hash of the library.
    keep : Path or None
        File of the verdicts of finished schedules.
    examine : callable
        Function that returns verifiers' evidence on a claim. It decides claims that do not concern
        a view, such as a budget of sums; on other claims it can only accuse.
    """
    from securevfl.verified.traced.proofs import NOT_COVERED, Traced, prove_protocol, verdicts_in

    kept, owners = traced_options(made, options), made.roles().get("label_owner", ())
    rows = max(Traced.rows, 4 * len(owners))  # of each owner, more than two classes have labels
    traced = Traced(made.name, kept, len(made.peers()), rows, seed)
    proof = prove_protocol(traced, progress=progress, kept=verdicts_in(keep, traced, library))
    roles = made.roles()
    traces = [(proof.found[digest], world) for digest, world in proof.worlds.items()]
    there = {frozenset(one.coalition): one for one in proof.verdicts}
    inputs, small = traced.assets(), traced.claims()
    judged = []
    for claim in claims:
        if claim.strength not in _OF_STRENGTH or claim.against.role == "outsider":
            judged.append(conclude(claim, examine(claim)))
            continue
        subject = (claim.against, there, roles, made.colluders())
        some = coalitions_against(*subject, each=claim.strength == "none")
        found = judged_by_proof(
            *(claim, [there[one] for one in some], traces),
            missing=untraced(*subject),
            inputs=inputs,
            promised=_promised(claim, small) or claim.guarantees,
            later=_later(traced.longer(made.config.rounds), claim),
        )
        judged.append(_with_evidence(found, examine(claim)))
    ended = (f"{name}: there a run ends in an error" for name in proof.ended)
    ran = (f"a trace at {traced.sizes}; digest {proof.digest[:16]}",)
    parameters = {**made.describe(), "seed": seed}
    return Report(
        *(made.name, parameters, tuple(judged), leaks(made), (*NOT_COVERED, *ended), ran),
        library=library,
    )


def _later(longer: Traced | None, claim: Claim) -> tuple[Judge, Sequence[Guarantee]] | None:
    """Judge of a run of more rounds, and a differential claim's guarantees for that run.

    None without such a run or guarantees, for other claims, and if the run raises an error.
    """
    from securevfl.verified.verdicts import Judge

    if longer is None or claim.strength != "differential":
        return None
    try:
        promised = _promised(claim, longer.claims())
        return (Judge(longer.run(), runs=2, checks=False), promised) if promised else None
    except SecureVFLError:
        return None


def _promised(claim: Claim, claims: Iterable[Claim]) -> tuple[Guarantee, ...]:
    """Guarantees of those of `claims` that have the claim's adversary, asset and strength.

    `claims` are those of a traced run, so the guarantees are for its few rounds.
    """
    key = (claim.against, claim.asset, claim.strength)
    return tuple(
        promise
        for one in claims
        if (one.against, one.asset, one.strength) == key
        for promise in one.guarantees
    )


def traced_options(made: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name for the trace behind a verdict: the protocol's own, with small sizes.

    Options that determine roles and messages keep their configured values, given or default.
    """
    kept = {
        name: named(value) if name in OWN_CODE else value  # as another process finds it again
        for name, value in options.items()
        if name not in made.traced_options
    }
    own = {name: getattr(made.config, name) for name in made.role_options}
    if own.get("sum_budget"):  # a share of few columns: how many rounds it allows is a size
        own["sum_budget"] = max(own["sum_budget"], _LEAST_BUDGET)
    return kept | own


def _with_evidence(found: ClaimVerdict, more: Sequence[Evidence]) -> ClaimVerdict:
    """A verdict by proof with further evidence of verifiers; accusing evidence decides."""
    if any(one.effect == "accuses" for one in more):
        return conclude(found.claim, (*more, *found.evidence))
    return replace(found, evidence=(*found.evidence, *more))


def leaks(made: Protocol) -> tuple[Leakage, ...]:
    """Information that each role learns, as the protocol's card states it."""
    return tuple(Leakage(who, what, "the card") for who, what in made.card.sees.items())
