"""Verdicts on claims: search for a proof, check of it, and examination of outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified.changes import Changes
from securevfl.verified.check import Atom, Entries, Given, Poly, Refused, check, faithful
from securevfl.verified.costs import exact, price
from securevfl.verified.counting import count
from securevfl.verified.forms import Algebra, unfaithful
from securevfl.verified.prove import Found, Step, another, erring, remembering, search, view_of
from securevfl.verified.trace import OPENED, Output, Trace, name_of

IDEAL_PRF = "ideal PRF"
PATH = "opened values lead the way that was traced"
PROVED, DP, OPEN, VIOLATED = "PROVED", "DP", "NOT PROVED", "VIOLATED"
CLEAR = "NOT PROTECTED"
_ROUNDING = 2  # most by which an element differs from itself rounded anew
_MOST_NAMED = 6  # values that are sent as they are, in the words of a verdict


@dataclass(frozen=True)
class Scope:
    """Scope of a certificate: the conditions that a verdict holds under.

    Attributes
    ----------
    releases : int
        Number of values that are released with noise.
    price : str
        Privacy cost of these releases, in words.
    clear : tuple of str
        Values of single parties, or of rows released with noise, that are sent unprotected.
    prf : bool
        Whether streams of keys are assumed to be uniform.
    path : bool
        Whether the run opens values and decides on them.
    schedules : int
        Number of schedules; 0 for a single trace, whatever its schedule.
    """

    releases: int
    price: str
    clear: tuple[str, ...]
    prf: bool
    path: bool
    schedules: int = 0

    @classmethod
    def joined(cls, some: Sequence[Scope]) -> Scope:
        """Joint scope of one verdict for several schedules, with all of their conditions.

        `releases` is the largest number of one schedule; all prices are listed, because none need
        be the highest for each party.
        """
        prices = dict.fromkeys(one.price for one in some if one.price)
        return cls(
            max(one.releases for one in some),
            " or ".join(prices),
            tuple(dict.fromkeys(name for one in some for name in one.clear)),
            any(one.prf for one in some),
            any(one.path for one in some),
            len(some),
        )

    @property
    def word(self) -> str:
        """The verdict: "PROVED", "DP" or "NOT PROTECTED"."""
        return CLEAR if self.clear else DP if self.releases else PROVED

    @property
    def words(self) -> str:
        """Words of the verdict with its scope."""
        runs = {0: "this run", 1: "one undisturbed run"}
        many = runs.get(self.schedules, f"schedules ({self.schedules})")
        where = f"for these batches, shapes and {many}{', this path' * self.path}"
        where += f"{', ideal PRF' * self.prf}, given the outputs"
        paid = f"{self.releases} releases, {self.price}, given the weights"
        if not self.clear:
            return f"DP, {paid}, {where}" if self.releases else f"PROVED {where}"
        names, more = ", ".join(self.clear[:_MOST_NAMED]), len(self.clear) - _MOST_NAMED
        names += f" and {more} more" if more > 0 else ""
        one = len(self.clear) == 1
        are, them = ("is sent as it is", "it") if one else ("are sent as they are", "them")
        paid = paid.replace("releases", "releases with noise", 1) + ", and nothing else,"
        beside = paid if self.releases else "nothing"
        return f"{CLEAR}: {names} {are}; {beside} beside {them} (proved, {where})"


@dataclass
class Verdict:
    """Verdict on the claim that a coalition learns no more than the outputs.

    Attributes
    ----------
    verdict : str
        "PROVED", "DP" or "NOT PROTECTED" (with an accepted certificate), "NOT PROVED" or
        "VIOLATED".
    scope : str
        The verdict with its conditions; show this one to readers.
    coalition : tuple of int
        Numbers of the colluding parties; the server is -1.
    outputs : tuple of str
        Names of the declared outputs that it receives.
    text : str
        For "NOT PROVED" and "VIOLATED": the messages and what they reveal, or the error.
    judge : tuple of str
        Matters that no proof can decide and a reader must judge.
    assumptions : tuple of str
        Assumptions of the proof, such as on ideal primitives.
    releases : int
        Number of values released with noise.
    price : str
        (epsilon, delta) of these releases, by the party whose row or label it is.
    clear : tuple of str
        For "NOT PROTECTED": outputs of single parties that the coalition could not compute, and
        outputs without noise of rows that are released with noise. The certificate shows that it
        learns nothing beside the outputs.
    steps : tuple of Step
        The certificate.
    schedules : tuple of str
        Schedules for which the verdict holds; empty for a single trace.
    counted : str
        For "NOT PROVED": the result of exact counting, or the reason why there is none.
    """

    verdict: str
    coalition: tuple[int, ...]
    outputs: tuple[str, ...]
    claim: str = ""
    text: str = ""
    judge: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    releases: int = 0
    price: str = ""
    clear: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    messages: tuple[str, ...] = field(default=(), repr=False)
    schedules: tuple[str, ...] = ()
    counted: str = ""

    @property
    def sure(self) -> bool:
        """Whether a checker accepted the verdict's certificate."""
        return self.verdict in (PROVED, DP, CLEAR)

    @property
    def scope(self) -> str:
        """The verdict with its scope, if it has a certificate."""
        return self.of.words if self.sure else self.verdict

    @property
    def of(self) -> Scope:
        """Scope of a verdict that has a certificate."""
        prf = any(one.startswith(IDEAL_PRF) for one in self.assumptions)
        path = any(one.startswith(PATH) for one in self.assumptions)
        return Scope(self.releases, self.price, self.clear, prf, path, len(self.schedules))

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON types."""
        return {**asdict(self), "scope": self.scope}


class Judge:
    """Judge of one trace: gives verdicts, and computes shared parts once.

    Parameters
    ----------
    world : Trace
        The traced run.
    runs : int
        Largest number of runs of all functions on other inputs (`securevfl.verified.prove.erring`).
    checks : bool
        Whether certificates are checked here. If not, verdicts are provisional until another
        process has accepted their certificates.
    """

    def __init__(self, world: Trace, *, runs: int = 16, checks: bool = True) -> None:
        self.world, self.checks = world, checks
        self.algebra: Algebra | None = None
        self.entries: Entries | None = None
        self.fault: str | None = None
        self.changes: Changes | None = None
        try:
            self.algebra = Algebra(world)
            self.changes = Changes(self.algebra, another(self.algebra))
            self.fault = unfaithful(self.algebra)
            if self.fault is None:
                self.entries = Entries(world)
                if checks:
                    faithful(self.entries)
                self.fault = erring(self.algebra, runs) or remembering(self.algebra) or None
        except Refused as why:
            self.fault = str(why)
        except (SecureVFLError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            self.fault = f"the trace could not be read: {type(error).__name__}: {error}"

    def decide(self, coalition: Iterable[int], outputs: Sequence[Output] | None = None) -> Verdict:
        """Verdict on one coalition, given the outputs that its members may have."""
        some = frozenset(coalition)
        given = self.world.outputs_of(some) if outputs is None else list(outputs)
        found = Found(OPEN)
        judge: tuple[str, ...] = ()
        strangers = self._strangers(some)
        if self.fault is not None or self.algebra is None or self.entries is None:
            found.text = self.fault or "the trace could not be read"
        elif strangers:
            found.text = strangers
        else:
            try:
                several = set[str]()
                alone, judge = judged(self.entries.told, some, given, several)
                found = search(self.algebra, some, given)
                if found.verdict in (PROVED, DP):
                    alone = alone or self._seen(found, some, given, several)
                    refused = Found(OPEN, text=alone)
                    found = refused if alone else self._checked(found, some, given)
            except (SecureVFLError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                found = Found(OPEN, text=f"the prover ended in {type(error).__name__}: {error}")
            except RecursionError:
                found = Found(OPEN, text="the prover ended in too deep a recursion")
        sure = found.verdict in (PROVED, DP)
        clear = clear_of(self.entries.told, some, given) if sure and self.entries else ()
        if sure:
            clear = with_exact(clear, self.world, found.steps, some, given)
        if found.verdict == DP:
            judge += self._of_one_record()
        return Verdict(
            CLEAR if clear else found.verdict,
            tuple(sorted(some)),
            tuple(output.name for output in given),
            who(some),
            found.text,
            judge,
            self.assumptions(found),
            found.releases if sure else 0,
            priced(self.world, found.steps, some) if sure else "",
            clear,
            tuple(found.steps) if sure else (),
            tuple(found.messages),
            counted=count(self.world, some, given).text if found.verdict == OPEN else "",
        )

    def _seen(
        self, found: Found, some: frozenset[int], given: Sequence[Output], several: set[str]
    ) -> str:
        """Reason against a proof, seen with changed inputs; "" if there is none."""
        assert self.changes is not None
        released = [step.node for step in found.steps if step.what == "release"]
        joint = [one for one in given if one.name in several and not one.alone]
        return self.changes.dearer(released, some) or self.changes.of_one(some, joint)

    def _strangers(self, coalition: frozenset[int]) -> str:
        """Complaint about a coalition member outside the run; "" if there is none.

        Such a party sees nothing, so every claim on it would be proved.
        """
        there = self.world.members | {message.to for message in self.world.messages}
        if coalition - there:
            return f"there is no party {min(coalition - there)} in this run"
        return ""

    def _of_one_record(self) -> tuple[str, ...]:
        """Functions applied before clipping; each released row must depend on one record only."""
        from securevfl.privacy.mechanisms import clip_finite_rows

        todo = [node for node in self.world.nodes if node.op == "release"]
        seen, titles = set(), dict[str, None]()
        while todo:
            node = todo.pop()
            if node.number in seen:
                continue
            seen.add(node.number)
            if node.op == "map" and node.data[0].function is not clip_finite_rows:
                titles[node.data[0].title] = None
            elif node.op in ("index", "matmul"):
                titles["sums, products and choices of field elements"] = None
            todo.extend(node.args)
        why = "whether each row of what it returns depends on one record alone"
        return tuple(f"{why}: {title}" for title in titles)

    def _checked(self, found: Found, some: frozenset[int], given: Sequence[Output]) -> Found:
        """The finding if the checker accepts it; else NOT PROVED, with the reason."""
        if not self.checks:
            return found
        why, releases = check(self.world, some, given, found.steps, self.entries)
        if why is not None:
            return Found(OPEN, text=f"the certificate was refused: {why}")
        found.verdict, found.releases = (DP if releases else PROVED), releases
        return found

    def assumptions(self, found: Found) -> tuple[str, ...]:
        """Assumptions of a proof besides correct kernels of the library."""
        said = ["parties follow the protocol; the library's kernels, engine and types do theirs"]
        if any(step.what == "prf" for step in found.steps):
            said.append(
                f"{IDEAL_PRF} (HKDF and AES-256), keys hidden one after the other; who drops out "
                "is not chosen by what was seen"
            )
        if any(message.kind.startswith(OPENED) for message in self.world.messages):
            said.append(f"{PATH} (what the protocol opens to decide on)")
        if self.world.may_abort:
            said.append("no run ends in an error: that it does may tell of data")
        used = {node.op for node in self.world.nodes}
        if "agreed" in used:
            said.append("key agreement: X25519 with a hash, many users (oracle Diffie-Hellman)")
        if any(part.holder is not None for m in self.world.messages for part in m.parts):
            said.append("ideal encryption; a sum of ciphertexts is re-randomised")
        if found.releases:
            said.append(
                "the accountant counts each release by its bound, its sigma and the row numbers "
                "that the party gave, which name all rows that a record changes (runs with one "
                "record changed saw no other)"
            )
        return tuple(said)


def priced(world: Trace, steps: Iterable[Step], coalition: Iterable[int]) -> str:
    """Privacy cost of the releases in a certificate."""
    return price(world, [step.node for step in steps if step.what == "release"], coalition)


def with_exact(
    clear: tuple[str, ...],
    world: Trace,
    steps: Iterable[Step],
    coalition: Iterable[int],
    outputs: Iterable[Output],
) -> tuple[str, ...]:
    """Names in `clear`, and outputs that tell of rows for which a certificate's releases pay."""
    released = [step.node for step in steps if step.what == "release"]
    return tuple(dict.fromkeys((*clear, *exact(world, released, coalition, outputs))))


def who(coalition: Iterable[int]) -> str:
    """A coalition in words."""
    some = sorted(coalition)
    clients = [str(n) for n in some if n >= 0]
    parts = ["server"] if -1 in some else []
    if clients:
        parts.append(f"client{'s' if len(clients) > 1 else ''} {', '.join(clients)}")
    return " + ".join(parts) or "nobody"


def decide(
    world: Trace, coalition: Iterable[int], outputs: Sequence[Output] | None = None
) -> Verdict:
    """The verdict on one coalition of a traced run; see `Judge.decide`."""
    return Judge(world).decide(coalition, outputs)


def clear_of(
    entries: Entries, coalition: frozenset[int], outputs: Sequence[Output]
) -> tuple[str, ...]:
    """Names of outputs that, with the coalition's values and other outputs, expose one party."""
    told = [one for one in outputs if one.alone]
    if not told:
        return ()
    others = Given(entries, coalition, [one for one in outputs if not one.alone])
    return tuple(
        dict.fromkeys(
            one.name for one in told if not all(map(others.spanned, entries.of(one.node)))
        )
    )


def judged(
    entries: Entries,
    coalition: frozenset[int],
    outputs: Sequence[Output],
    several: set[str] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Sentence on outputs that expose one honest party ("" if none), and matters for a reader.

    A perfect simulation *given the outputs* does not bound what the outputs reveal. They are
    examined entry by entry: a combination that leaves only one honest party's inputs is
    refused. It may contain outputs declared as one party's, but not consist of these alone. A
    second examination identifies values that differ only by rounding, and so finds combinations
    that depend on one party's inputs up to rounding.
    """
    owners = Owners(entries, coalition, outputs)
    rows: list[tuple[str, Poly]] = []
    told: list[Poly] = []  # of single parties, which `clear_of` names
    said: dict[str, list[str]] = {}
    honest: set[int] = set()
    depends: dict[str, set[int]] = {}
    joint: set[str] = set()
    for output in outputs:
        for poly in entries.of(output.node):
            left = {m: c for m, c in poly.items() if owners.of(m) - coalition}
            if output.alone:
                told.append(left)
                continue
            for monomial in left:
                honest |= owners.of(monomial) - coalition
                depends.setdefault(output.name, set()).update(owners.of(monomial) - coalition)
            if len({min(c, entries.p - c) for c in left.values()}) > 1:
                said.setdefault("a sum with unequal weights", []).append(output.name)
            for monomial in left:
                for symbol in monomial:
                    atom = entries.atom(symbol)
                    if atom.kind == "map" and len(owners.of((symbol,)) - coalition) > 1:
                        why = f"what {atom.node.data[0].title} tells of each of its inputs"
                        said.setdefault(why, []).append(output.name)
                        joint.add(output.name)
            if left:
                rows.append((output.name, left))
    for one, other in itertools.permutations(depends, 2):
        apart = depends[one] - depends[other]
        if len(apart) == 1 and depends[other] < depends[one] and joint & {one, other}:
            why = f"what two outputs tell together of {name_of(*apart)}, on which one depends"
            said.setdefault(why, []).append(f"{one} and {other}")
    if several is not None:
        several |= joint
    judge = tuple(f"{why}: {', '.join(dict.fromkeys(names))}" for why, names in said.items())
    again = rounded_anew(entries)
    looks = [("", (told, rows))]
    if again:
        ones = [renamed(entries, poly, again) for poly in told]
        every = [(name, renamed(entries, poly, again)) for name, poly in rows]
        looks.append((", but for rounding", (ones, every)))
    for but, of in looks:
        for n in sorted(honest - _never_alone(entries, owners, coalition, of, honest)):
            found = _alone(entries, owners, coalition, of, n)
            if found:
                return f"outputs up to {found} tell of {name_of(n)} alone{but}", judge
    return "", judge


def rounded_anew(entries: Entries) -> dict[int, int]:
    """Symbols of an earlier result, by each symbol of a result that only rounds it again.

    They are field elements that one function returned for equal protected and different public
    arguments, such as a round's number, and that differ by at most `_ROUNDING`. The numbers of the
    trace decide, so this can only add refusals.
    """
    if entries.rounded is None:
        again: dict[int, int] = {}
        entries.rounded = again
        first: dict[Any, list[Atom]] = {}
        for atom in entries.atoms:
            if atom.kind != "map" or atom.node.kind != "field":
                continue
            call, place, _ = atom.node.data
            deps = tuple(tuple(_frozen(entries, q, again) for q in arg) for arg in atom.deps)
            same = first.setdefault((call.code, place, atom.node.shape, deps), [])
            for one in same:
                if _near(entries.p, one.node.value, atom.node.value):
                    again.update((atom.base + i, one.base + i) for i in range(atom.size))
                    break
            else:
                same.append(atom)
    return entries.rounded


def _near(p: int, one: Any, other: Any) -> bool:
    """Whether arrays of elements modulo p differ by at most `_ROUNDING`, as by rounding."""
    apart = abs(one.astype(np.int64) - other.astype(np.int64))
    return p > 2**8 and bool((np.minimum(apart, p - apart) <= _ROUNDING).all())


def _frozen(entries: Entries, poly: Poly, again: Mapping[int, int]) -> frozenset[Any]:
    return frozenset((renamed(entries, poly, again) if again else poly).items())


def renamed(entries: Entries, poly: Poly, by: Mapping[int, int]) -> Poly:
    """A polynomial with some symbols renamed."""
    found: Poly = {}
    for monomial, c in poly.items():
        other = tuple(sorted(by.get(s, s) for s in monomial))
        found[other] = (found.get(other, 0) + c) % entries.p
    return {monomial: c for monomial, c in found.items() if c}


class Owners:
    """Parties on whose inputs a symbol of `entries` depends, apart from what outputs reveal.

    An argument of a function that the coalition's outputs determine, such as a declared gradient,
    is left out. So a network after a step depends on its owner only, although the gradient depends
    on all.
    """

    def __init__(
        self, entries: Entries, coalition: frozenset[int], outputs: Sequence[Output]
    ) -> None:
        self._entries = entries
        self._found: dict[int, frozenset[int]] = {}
        self._of: dict[tuple[int, ...], frozenset[int]] = {}
        given = Given(entries, coalition, outputs)
        for atom in entries.atoms:  # in the order of the trace: what goes in comes first
            own: set[int] = set()
            if atom.kind == "secret" and atom.node.owner is not None:
                own.add(atom.node.owner)
            # What a release tells is paid for: it is nobody's any more.
            for arg in () if atom.kind == "release" else atom.deps:
                more: set[int] = set()
                more.update(*(self.of(monomial) for poly in arg for monomial in poly))
                if not more <= own and not all(map(given.spanned, arg)):
                    own |= more
            self._found[atom.base] = frozenset(own)

    def of(self, monomial: tuple[int, ...]) -> frozenset[int]:
        """Parties whose inputs occur in a monomial; cached."""
        if monomial not in self._of:
            atoms = map(self._entries.atom, monomial)
            self._of[monomial] = frozenset().union(*(self._found[atom.base] for atom in atoms))
        return self._of[monomial]


def _never_alone(
    entries: Entries,
    owners: Owners,
    coalition: frozenset[int],
    of: tuple[Sequence[Poly], Sequence[tuple[str, Poly]]],
    honest: Iterable[int],
) -> set[int]:
    """Honest parties that no combination of outputs exposes, by a quick test.

    If the terms of one party alone are linearly independent over the outputs, every combination has
    such terms, so it exposes no other party. This saves an elimination for each of the others. The
    newest outputs come first: they have the newest symbols, so few need elimination.
    """
    told, rows = of
    found: set[int] = set()
    for one in sorted(honest)[:2]:
        basis: dict[Any, Poly] = {}
        every = [*((True, q) for q in told[::-1]), *((False, q) for _, q in rows[::-1])]
        for sure, poly in every:
            row = {m: c for m, c in poly.items() if owners.of(m) - coalition == {one}}
            if sure and not row:
                continue  # it tells nothing of this party, whatever it is combined with
            while row and (pivot := max(row)) in basis:
                row = entries.plus(row, basis[pivot], -row[pivot])
            if not row:
                break
            basis[pivot] = entries.times(row, {(): pow(row[pivot], -1, entries.p)})
        else:
            found.update(n for n in honest if n != one)
    return found


def _alone(
    entries: Entries,
    owners: Owners,
    coalition: frozenset[int],
    of: tuple[Sequence[Poly], Sequence[tuple[str, Poly]]],
    party: int,
) -> str:
    """Name of the output that completes a combination exposing one party; "" if there is none."""
    told, rows = of
    basis: dict[Any, Poly] = {}
    for name, poly in (*((None, one) for one in told), *rows):
        row = dict(poly)
        for pivot, known in basis.items():
            if pivot in row:
                row = entries.plus(row, known, -row[pivot])
        others = [m for m in row if owners.of(m) - coalition != {party}]
        if row and name is not None and not others:
            return name
        if row:
            pivot = (others or list(row))[0]
            basis[pivot] = entries.times(row, {(): pow(row[pivot], -1, entries.p)})
    return ""


__all__ = ["Judge", "Scope", "Verdict", "clear_of", "decide", "judged", "view_of", "who"]
