"""Proofs of protocols: a traced run, its verdicts, and certificates that another process checks."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from securevfl._version import __version__
from securevfl.data.dataset import VerticalDataset
from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.faults import Faults
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import SecretSeed
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import few_collections, one_thread
from securevfl.verified.check import Entries, Refused, check, faithful
from securevfl.verified.functions import FlowError, same
from securevfl.verified.participants import Provable
from securevfl.verified.parties import World
from securevfl.verified.rules import problems_of
from securevfl.verified.schedules import UNDISTURBED, Schedule, resumed
from securevfl.verified.trace import OPENED
from securevfl.verified.traced.kept import KeptVerdicts, step_of
from securevfl.verified.values import tracing
from securevfl.verified.verdicts import (
    CLEAR,
    DP,
    OPEN,
    PROVED,
    VIOLATED,
    Judge,
    Scope,
    Verdict,
    clear_of,
    judged,
    priced,
    who,
    with_exact,
)

FORMAT, VERSION = "securevfl certificate", 3
OUTPUTS_TELL = (
    "The proof does not bound what these outputs tell. Sums of embeddings are equations about each "
    "row, and as many as there are columns can give the columns away (docs/sums.md); gradients "
    "tell of labels."
)
OR_PLAY = "A game tells two inputs apart by the views of runs (securevfl.audit.games)."
NOT_COVERED = (
    "parties that deviate",
    "time that computing takes",
    "floats' side channels",
    "runs that end in an error",
    "other sizes and schedules",
    "what the outputs themselves tell",
)
MORE_ROUNDS = 9  # in which labels of masks, or batches, may come again
_WIDTH = 2  # columns of each client: with equal ones two may change places in a refutation


@dataclass(frozen=True)
class Traced:
    """Subject of a trace: a protocol, its options, and public sizes.

    Attributes
    ----------
    protocol : str
        Name of the protocol.
    options : mapping
        Options of the protocol.
    parties, rows : int
        Numbers of clients and of training rows.
    seed : int
        Seed of the public choices, such as batches.
    """

    protocol: str
    options: Mapping[str, Any]
    parties: int = 4
    rows: int = 8
    seed: int = 0

    def run(
        self,
        conditions: Conditions = NONE,
        *,
        inputs: int = 0,
        faults: Faults | None = None,
        repeats: bool = False,
        other: str = "",
    ) -> World:
        """Run the protocol in the simulation with a trace, and declare its outputs.

        Parameters
        ----------
        conditions : Conditions
            Delays and bandwidth.
        inputs : int
            Seed of columns, labels and initial weights, which are protected. If traces with two
            seeds have different digests, something public depends on inputs.
        faults : Faults, optional
            Parties that crash and come back.
        repeats : bool
            Whether each function is run twice; an error names a function whose results differ. (A
            check runs each function again anyway.)
        other : str
            Asset whose value differs from `inputs`: "features", "labels" or "model".
        """
        made = self._made(inputs, other)
        world = World(made.field.modulus)
        world.may_abort, world.repeats = True, repeats
        transcript = Transcript(payloads=True)
        with tracing(world), one_thread(), few_collections():
            parties = made.parties()
            simulation = Simulation(
                parties,
                seed=self.seed,
                conditions=conditions,
                transcript=transcript,
                secrets=made.secrets,
                rules=rules_of(made),
                faults=None if faults is None else faults.bind(made.roles(), self.seed),
                make_party=lambda n: made.parties()[n],
            )
            simulation.run()
            world.compare(_sent(transcript))
            made.ideal(world)
        world.coalitions, world.delta = made.coalitions(), made.delta()
        if not world.coalitions:
            raise ConfigurationError(
                f"{self.protocol}: coalitions() names none, with colluders() = {made.colluders()} "
                f"of {self.parties} clients: name one at least"
            )
        return world

    def schedules(self) -> tuple[Schedule, ...]:
        """Schedules under which the protocol is traced; in the first, no party is late.

        ConfigurationError if the first schedule has delays or outages, or two schedules have one
        name.
        """
        found = tuple(self._made(0).schedules())
        names = [one.name for one in found]
        if found[:1] != (UNDISTURBED,) or len(set(names)) < len(names):
            raise ConfigurationError(
                f"{self.protocol}: schedules begin with UNDISTURBED, and each has its own name"
            )
        return found

    def assets(self) -> dict[tuple[int, str], set[str]]:
        """Assets ("features", "labels", "model") that each input depends on, by owner and name."""
        usual = self.run().inputs
        found: dict[tuple[int, str], set[str]] = {}
        for asset in ("features", "labels", "model"):
            for key, value in self.run(other=asset).inputs.items():
                if key not in usual or not same(usual[key]._value, value._value):
                    found.setdefault(key, set()).add(asset)
        return found

    def longer(self, most: int = MORE_ROUNDS) -> Traced | None:
        """Copy with `most` rounds, at most 9; None if it has as many, or no option `rounds`."""
        cls: Any = get_protocol(self.protocol)
        rounds = {**cls.traced_options, **self.options}.get("rounds")
        if not isinstance(rounds, int) or rounds >= min(most, MORE_ROUNDS):
            return None
        return replace(self, options={**self.options, "rounds": min(most, MORE_ROUNDS)})

    @property
    def foreign(self) -> bool:
        """Whether the protocol is of another package than the library."""
        return not get_protocol(self.protocol).__module__.startswith("securevfl.")

    def claims(self) -> tuple[Any, ...]:
        """Claims of the protocol with the options of the traced run, which has few rounds."""
        return tuple(self._made(0).claims)

    def _made(self, inputs: int, other: str = "") -> Any:
        """Protocol with inputs drawn from a seed, and one asset from another.

        ConfigurationError if the protocol is not written with protected values.
        """
        cls: Any = get_protocol(self.protocol)
        if not issubclass(cls, Provable):
            raise ConfigurationError(
                f"{self.protocol} is not written with protected values, so there is no trace to "
                "prove; derive its parties from Participant and itself from Provable "
                "(docs/proof.md)"
            )
        config = make_config(cls, {**cls.traced_options, **self.options})
        data = self._data(inputs)
        if other == "features":
            data = replace(data, train=tuple(1 - X for X in data.train),
                           test=tuple(1 - X for X in data.test),
                           alone=tuple(1 - X for X in data.alone))  # fmt: skip
        elif other == "labels":
            rest = data.alone_labels
            data = replace(data, train_labels=1 - data.train_labels,
                           test_labels=1 - data.test_labels,
                           alone_labels=None if rest is None else 1 - rest)  # fmt: skip
        made: Any = cls(config, data, seed=self.seed)
        made.secrets = SecretSeed(inputs + (other == "model"))
        return made

    def _data(self, inputs: int) -> VerticalDataset:
        """Rows of all parties, and further rows of each party alone if the protocol needs them."""
        cls: Any = get_protocol(self.protocol)
        data = small_data(self.parties, self.rows + cls.traced_alone, inputs)
        if not cls.traced_alone:
            return data
        M = self.rows
        return replace(
            data,
            train=tuple(X[:M] for X in data.train),
            train_labels=data.train_labels[:M],
            alone=tuple(X[M:] for X in data.train),
            alone_labels=data.train_labels[M:],
        )

    def problems(self) -> list[str]:
        """Rules that the protocol's own module breaks (`securevfl.verified.rules`).

        The library's own methods are checked by its tests, not at each proof.
        """
        cls = get_protocol(self.protocol)
        if not self.foreign:
            return []
        source = inspect.getsourcefile(cls)
        return [] if source is None else problems_of(source)

    @property
    def sizes(self) -> str:
        """Public sizes that a verdict applies to."""
        cls: Any = get_protocol(self.protocol)
        options = {**cls.traced_options, **self.options}
        said = ", ".join(f"{name} = {value}" for name, value in options.items())
        alone = f" and {cls.traced_alone} of each alone" if cls.traced_alone else ""
        return f"N = {self.parties}, M = {self.rows} rows{alone}" + (f", {said}" if said else "")


def small_data(parties: int, rows: int, seed: int = 0) -> VerticalDataset:
    """Small data set of two classes; its values are arbitrary, since proofs hold for all."""
    rng = np.random.default_rng(seed)
    features = [rng.standard_normal((rows, _WIDTH)).astype(np.float32) for _ in range(parties)]
    labels = rng.permutation(np.arange(rows) % 2)
    return VerticalDataset.from_numpy(
        features,
        labels,
        test_features=[x[:3] for x in features],  # whose numbers are no labels of theirs
        test_labels=labels[:3],
        scaling="none",
    )


def _sent(transcript: Transcript) -> list[tuple[int, int, str, bytes]]:
    """Sender, receiver, kind and bytes of each message, by the engine's own record."""
    assert transcript.payloads is not None
    columns = transcript.columns()
    rows = zip(columns["sender"], columns["receiver"], columns["kind"], strict=True)
    found = [(int(sender), int(to), str(kind)) for sender, to, kind in rows]
    payloads = map(wire.encode, transcript.payloads)
    return [(*head, payload) for head, payload in zip(found, payloads, strict=True)]


@dataclass(frozen=True)
class Proof:
    """Verdicts on a protocol's claims, with their scope.

    Attributes
    ----------
    traced : Traced
        Protocol, options and sizes.
    traces : mapping of str to str
        Hash of the trace by schedule: of its steps, messages and outputs, without values.
    ended : mapping of str to str
        Error of each schedule under which the run ends in one; nothing is claimed of these.
    found : mapping of str to tuple of Verdict
        Verdicts on all coalitions by hash of the trace.
    verdicts : tuple of Verdict
        Weakest verdict of all schedules on each coalition.
    worlds : mapping of str to World
        Traces by their hash, without values of the run.
    """

    traced: Traced
    traces: Mapping[str, str]
    ended: Mapping[str, str]
    found: Mapping[str, tuple[Verdict, ...]]
    verdicts: tuple[Verdict, ...]
    worlds: Mapping[str, World] = field(default_factory=dict, repr=False, compare=False)

    @property
    def first(self) -> tuple[Verdict, ...]:
        """Verdicts, with steps, for the schedule in which no party is late."""
        return self.found[next(iter(self.traces.values()))]

    @property
    def digest(self) -> str:
        """Hash of all traces."""
        return hashlib.sha256(repr(sorted(self.traces.items())).encode()).hexdigest()

    def certificate(self) -> dict[str, Any]:
        """The document that `check_certificate` reads."""
        t = self.traced
        sure = {v.coalition for v in self.verdicts if v.sure}
        proofs = {
            digest: [v.to_dict() for v in verdicts if v.coalition in sure]
            for digest, verdicts in self.found.items()
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "library": __version__,
            "protocol": t.protocol,
            "options": dict(t.options),
            "parties": t.parties,
            "rows": t.rows,
            "seed": t.seed,
            "sizes": t.sizes,
            "trace": self.digest,
            "schedules": dict(self.traces),
            "proofs": proofs,
            "claims": [replace(v, steps=()).to_dict() for v in self.verdicts if v.sure],
        }


def prove_protocol(
    traced: Traced,
    *,
    conditions: Conditions = NONE,
    fresh: bool = True,
    progress: Callable[[str], None] = lambda words: None,
    kept: KeptVerdicts | None = None,
) -> Proof:
    """Trace a protocol under all of its schedules, and decide its claims.

    Parameters
    ----------
    traced : Traced
        Protocol, options and sizes.
    conditions : Conditions
        Conditions to use instead of its schedules. A check accepts the certificate if the trace
        equals that of the undisturbed schedule.
    fresh : bool
        Whether a new process traces the protocol again and checks the certificate. Without it no
        verdict is PROVED.
    progress : callable
        Called with one text, the share of schedules done first; results in it are no verdicts yet.
    kept : KeptVerdicts, optional
        Verdicts of traces from an earlier start, which are not searched again; the verdicts of
        this start are added.

    Raises
    ------
    SecureVFLError
        If the run of the first schedule ends in an error, or any run in a `FlowError`.
    """
    traces: dict[str, str] = {}
    ended: dict[str, str] = {}
    worlds: dict[str, World] = {}
    found: dict[str, tuple[Verdict, ...]] = {} if kept is None else kept.read()
    ran: set[tuple[str, ...]] = set()
    problems = traced.problems()
    schedules = [(one.name, one.conditions, one.faults) for one in traced.schedules()]
    if conditions is not NONE:
        schedules = [(UNDISTURBED.name, conditions, None)]
    with one_thread():
        for number, (name, late, faults) in enumerate(schedules):
            progress(f"{_share(number, schedules)}: a trace, {name}")
            try:
                world = traced.run(late, faults=faults, repeats=not traces)
                again = traced.run(late, faults=faults, inputs=1)
            except SecureVFLError as error:
                if not traces or isinstance(error, FlowError):
                    raise
                ended[name] = str(error)
                continue
            world.faults.extend(problems)
            digest = world.digest()
            if digest != again.digest():
                where = world.differs(again)
                world.faults.append(f"{where} is public, and changes with protected inputs")
            of = [one.coalition for one in found.get(digest, ())]  # others in an earlier start
            if of != [tuple(sorted(one)) for one in world.coalitions] or world.faults:
                called = _functions(world)
                judge = Judge(world, runs=2 if called <= ran else 16, checks=not fresh)
                ran |= called
                decided = []
                for k, some in enumerate(world.coalitions):
                    decided.append(judge.decide(some))
                    said = "derived, unchecked" if decided[-1].sure else decided[-1].verdict
                    share = _share(number + (k + 1) / (len(world.coalitions) + 1), schedules)
                    progress(f"{share}: {who(some)}: {said} so far, {name}")
                found[digest] = tuple(decided)
                if kept is not None and not world.faults:
                    kept.add(digest, decided)
            traces[name] = digest
            world.forget()
            worlds.setdefault(digest, world)
    verdicts = tuple(
        _weakest(traces, [found[digest][k] for digest in traces.values()])
        for k in range(len(world.coalitions))
    )
    found = {digest: found[digest] for digest in traces.values()}
    proof = Proof(traced, traces, ended, found, verdicts, worlds)
    for further, schedule in _further(traced):
        where = schedule.name if further is traced else f"in {further.options['rounds']} rounds"
        progress(f"{_share(len(schedules), schedules)}: a trace, {where}")
        _look_further(further, schedule, where, proof)
    if fresh and any(v.sure for v in verdicts):
        progress(f"{_share(len(schedules), schedules)}: another process checks the certificate")
        _confirm(proof)
    if kept is not None:
        kept.remove()
    return proof


def _further(traced: Traced) -> list[tuple[Traced, Schedule]]:
    """Further runs that may refute a proof of an author's protocol; none for the library's own.

    One has more rounds, so that batches and counters come again. In one all parties crash and go on
    from what they stored.
    """
    if not traced.foreign:
        return []
    cls: Any = get_protocol(traced.protocol)
    longer, found = traced.longer(), []
    if longer is not None:
        found.append((longer, UNDISTURBED))
    if cls.ideal_repeats and len(traced.schedules()) > 1:
        found.append((traced, resumed(traced.parties)))
    return found


def _look_further(traced: Traced, schedule: Schedule, where: str, proof: Proof) -> None:
    """Run one more schedule, and replace verdicts in `proof` that its run refutes.

    Of the sure verdicts with the server, and of those without, the one on the most clients is tried
    first; others only if it is refuted. A run that ends in an error refutes none, but a FlowError
    of the undisturbed schedule refutes all.
    """
    sure = sorted((v for v in proof.verdicts if v.sure), key=lambda v: -len(v.coalition))
    try:
        with one_thread():
            world = traced.run(schedule.conditions, faults=schedule.faults)
            judge = Judge(world, runs=2, checks=False)
            for server in (True, False):
                for verdict in (v for v in sure if (-1 in v.coalition) is server):
                    found = judge.decide(verdict.coalition)
                    if found.sure:
                        break
                    _take_back(proof, verdict, found.verdict, f"{where}: {found.text}")
    except FlowError as error:
        for verdict in sure if schedule is UNDISTURBED else ():
            _take_back(proof, verdict, OPEN, f"{where}: {error}")
    except (SecureVFLError, AttributeError, LookupError, TypeError, ValueError):
        return


def _take_back(proof: Proof, verdict: Verdict, word: str, text: str) -> None:
    """Replace the verdict on a coalition, in all traces, by `word` and `text`."""
    for one in (verdict, *(v for some in proof.found.values() for v in some)):
        if one.coalition == verdict.coalition:
            one.verdict, one.text, one.steps, one.clear = word, text, (), ()


def _confirm(proof: Proof) -> None:
    """Let another process check a certificate, and take back what it does not accept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        path.write_text(json.dumps(proof.certificate()))
        accepted, stopped = _elsewhere(path)
    for verdict in proof.verdicts:
        why = accepted.get(",".join(map(str, verdict.coalition)), stopped)
        if verdict.sure and why:
            _take_back(proof, verdict, OPEN, f"not accepted by the checking process: {why}")


def verdicts_in(path: Path | None, traced: Traced, library: str) -> KeptVerdicts | None:
    """Verdicts kept in a file, of one subject and version of the library; None without a file."""
    return None if path is None else KeptVerdicts(path, f"{library}; {traced}")


def _share(done: float, schedules: Sequence[object]) -> str:
    """Finished share of schedules and final check, which takes about as long as a schedule."""
    return f"{100 * done / (len(schedules) + 1):.0f} %"


def _functions(world: World) -> set[tuple[str, ...]]:
    """Code names of functions called by `map` in a trace."""
    return {node.data[0].code for node in world.nodes if node.op == "map"}


def _weakest(schedules: Iterable[str], verdicts: Sequence[Verdict]) -> Verdict:
    """The weakest verdict on one coalition over all schedules, with its schedule."""
    names = tuple(schedules)
    order = (PROVED, DP, CLEAR, OPEN, VIOLATED)
    ranks = [order.index(v.verdict) for v in verdicts]
    place = ranks.index(max(ranks))
    worst = verdicts[place]
    if all(one is worst for one in verdicts):
        return replace(worst, schedules=names)
    text = worst.text
    if text and place:  # the first schedule is the usual one
        text = f"where {names[place]}: {text}"
    releases, price, clear = worst.releases, worst.price, worst.clear
    if worst.sure:
        whole = Scope.joined([v.of for v in verdicts])
        word, releases, price, clear = whole.word, whole.releases, whole.price, whole.clear
    else:
        word = worst.verdict

    def joined(what: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for v in verdicts for one in getattr(v, what)))

    judge: dict[str, dict[str, None]] = {}
    for why, _, outputs in (said.rpartition(": ") for said in joined("judge")):
        judge.setdefault(why, {}).update(dict.fromkeys(outputs.split(", ")))
    return replace(
        worst,
        verdict=word,
        text=text,
        releases=releases,
        price=price,
        clear=clear,
        outputs=joined("outputs"),
        judge=tuple(f"{why}: {', '.join(some)}" for why, some in judge.items()),
        assumptions=joined("assumptions"),
        schedules=names,
        steps=(),
    )


def _elsewhere(path: Path) -> tuple[dict[str, str], str]:
    """Answers of a fresh process on each claim ("" if accepted), and how it ended without them.

    It has the module search path of this process, without the working folder.
    """
    code = (
        "import json, sys; from securevfl.verified.traced.proofs import check_certificate as c; "
        "print(json.dumps({','.join(map(str, k)): v or '' for k, v in c(sys.argv[1]).items()}))"
    )
    paths = os.pathsep.join(one or os.getcwd() for one in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return dict(json.loads(done.stdout.splitlines()[-1])), "it said nothing of this claim"
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {}, f"it ended before the check, which is no fault of a message: {said[-1]}"


def read_certificate(path: str | Path) -> dict[str, Any]:
    """A certificate as written; its claims are not checked.

    ConfigurationError when the file is no certificate of this version.
    """
    try:
        read = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigurationError(f"check: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"check: {path} is no certificate of securevfl: {error}") from None
    if not isinstance(read, dict) or read.get("format") != FORMAT:
        raise ConfigurationError(f"check: {path} is no certificate of securevfl")
    if read.get("version") != VERSION:
        raise ConfigurationError(
            f"check: {path} has version {read.get('version')}, and this library reads {VERSION}"
        )
    return read


def check_certificate(path: str | Path) -> dict[tuple[int, ...], str | None]:
    """Trace a certificate's protocol again and check each claim: None if it holds, else why.

    A claim that holds has the verdict and the scope in the file. ConfigurationError when the file
    is no certificate of this version.
    """
    read = read_certificate(path)
    try:
        traced = Traced(
            *(str(read["protocol"]), dict(read["options"]), int(read["parties"])),
            *(int(read["rows"]), int(read["seed"])),
        )
        traces = {str(name): str(digest) for name, digest in read["schedules"].items()}
        claims = _by_coalition(read["claims"])
        proofs = {str(digest): _by_coalition(some) for digest, some in read["proofs"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"check: {path} lacks {error}") from None
    answers: dict[tuple[int, ...], str | None] = dict.fromkeys(claims)
    checked: dict[str, dict[tuple[int, ...], _Checked]] = {}
    names: list[str] = []
    said: dict[tuple[int, ...], list[_Checked]] = {who: [] for who in claims}
    problems = traced.problems()
    with one_thread():
        for schedule in traced.schedules():
            name = schedule.name
            try:
                world = traced.run(schedule.conditions, faults=schedule.faults, inputs=2)
                again = traced.run(schedule.conditions, faults=schedule.faults, inputs=3)
            except SecureVFLError as error:
                if name in traces or isinstance(error, FlowError):
                    why = f"where {name}, the run ends in an error: {error}"
                    return dict.fromkeys(claims, why)
                continue
            digest = world.digest()
            if {digest, again.digest()} != {traces.pop(name, "")}:
                return dict.fromkeys(claims, f"where {name}, the protocol's trace is another one")
            world.faults.extend(problems)
            try:
                entries = Entries(world)
                faithful(entries)
            except (Refused, FlowError) as error:
                return dict.fromkeys(claims, f"where {name}: {error}")
            if digest not in checked:
                some = proofs.get(digest, {})
                checked[digest] = {
                    who: _checked(world, entries, who, some.get(who)) for who in claims
                }
            names.append(name)
            for who, one in checked[digest].items():
                said[who].append(one)
                if one.refusal and not answers[who]:
                    answers[who] = f"where {name}: {one.refusal}"
    if traces:
        return dict.fromkeys(claims, f"the protocol has no schedule '{next(iter(traces))}'")
    if UNDISTURBED.name not in names:
        return dict.fromkeys(claims, "the usual run ends in an error")
    for who, claim in claims.items():
        answers[who] = answers[who] or _whole(claim, names, said[who])
    return answers


def _by_coalition(claims: Iterable[Mapping[str, Any]]) -> dict[tuple[int, ...], Mapping[str, Any]]:
    """Claims of a certificate by coalition.

    ValueError if a coalition has two claims.
    """
    found: dict[tuple[int, ...], Mapping[str, Any]] = {}
    for claim in claims:
        who = tuple(map(int, claim["coalition"]))
        if who in found:
            raise ValueError(f"one claim of {list(who)}: there are two")
        found[who] = claim
    return found


@dataclass(frozen=True)
class _Checked:
    """Result of checking one claim on one trace: a refusal, or outputs and scope."""

    refusal: str
    outputs: tuple[str, ...] = ()
    scope: Scope | None = None


def _whole(claim: Mapping[str, Any], names: Sequence[str], some: Sequence[_Checked]) -> str | None:
    """Reason for which a claim differs from the joint result of all traces; else None."""
    scope = Scope.joined([one.scope for one in some if one.scope is not None])
    outputs = dict.fromkeys(name for one in some for name in one.outputs)
    try:
        if (claim["verdict"], claim["scope"]) != (scope.word, scope.words):
            return f"its verdict is another one: {scope.words}"
        if claim["releases"] != scope.releases:
            return f"{scope.releases} values are released, not {claim['releases']}"
        if list(claim["schedules"]) != list(names):
            return "it is for other schedules than the protocol names"
        if list(dict.fromkeys(claim["outputs"])) != list(outputs):
            return "it is given other outputs than the protocol declares"
    except (KeyError, TypeError) as error:
        return f"it cannot be read: {error}"
    return None


def _checked(
    world: World, entries: Entries, coalition: Sequence[int], claim: Mapping[str, Any] | None
) -> _Checked:
    """Answer of a check on one claim (its outputs and steps; None: no proof) in one trace."""
    if claim is None:
        return _Checked("no proof")
    try:
        given = world.outputs_of(coalition)
        outputs = tuple(output.name for output in given)
        if list(outputs) != list(claim["outputs"]):
            return _Checked("it is given other outputs than the protocol declares")
        steps = [step_of(one) for one in claim["steps"]]
        alone, _ = judged(entries.told, frozenset(coalition), given)
        if alone:
            return _Checked(alone)
        why, releases = check(world, coalition, given, steps, entries)
        if why is not None:
            return _Checked(why or "refused")
        if releases != claim["releases"]:
            return _Checked(f"{releases} values are released, not {claim['releases']}")
        scope = Scope(
            releases,
            priced(world, steps, coalition),
            with_exact(
                clear_of(entries.told, frozenset(coalition), given), world, steps, coalition, given
            ),
            any(step.what == "prf" for step in steps),
            any(message.kind.startswith(OPENED) for message in world.messages),
        )
        if (claim["verdict"], claim["scope"]) != (scope.word, scope.words):
            return _Checked(f"its verdict is another one: {scope.words}")
        return _Checked("", outputs, scope)
    except (KeyError, TypeError, ValueError, SecureVFLError) as error:
        return _Checked(f"it cannot be read: {error}")


def is_provable(name: str) -> bool:
    """Whether a protocol is written with protected values, so that it can be proved."""
    return issubclass(get_protocol(name), Provable)


def lines(proof: Proof) -> list[str]:
    """Lines on a proof for readers: claims, verdicts with scope, outputs and assumptions."""
    found = [f"{proof.traced.protocol} at {proof.traced.sizes}; trace {proof.digest[:16]}"]
    for v in proof.verdicts:
        found.append(f"{v.claim}: {v.scope}")
        if v.text:
            found.append(f"  {v.text}")
    said = {"Given": "outputs", "A reader must judge": "judge", "Assumed": "assumptions"}
    for what, name in said.items():
        groups: dict[str, list[str]] = {}
        for v in proof.verdicts:
            told = dict.fromkeys(getattr(v, name))
            groups.setdefault("; ".join(told), []).append(v.claim)
        for text, claims in groups.items():
            whom = "all" if len(claims) == len(proof.verdicts) else "; ".join(claims)
            if text:
                found.append(f"{what} ({whom}): {text}.")
        if what == "Given" and any(v.outputs for v in proof.verdicts):
            found.append(OUTPUTS_TELL)
    if any(v.verdict == OPEN for v in proof.verdicts):
        found.append(
            "NOT PROVED is no accusation: the messages named could not be explained by tapes and "
            "outputs. Look at these first."
        )
        counted = dict.fromkeys(v.counted for v in proof.verdicts if v.counted)
        found += [f"{said[0].upper()}{said[1:]}. {OR_PLAY}" for said in counted]
    distinct = len(set(proof.traces.values()))
    if len(proof.traces) > 1:
        names = "; ".join(proof.traces)
        found.append(f"Schedules ({len(proof.traces)}, {distinct} traces): {names}.")
    for name, why in proof.ended.items():
        found.append(f"No schedule of these: {name}; the run ends in an error: {why:.200}")
    found.append(f"Not covered: {', '.join(NOT_COVERED[:-1])}, and {NOT_COVERED[-1]}.")
    return found
