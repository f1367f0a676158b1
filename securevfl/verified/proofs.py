"""Proofs of protocols: a traced run, its verdicts, and certificates that another process checks."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from securevfl.runs.threads import one_thread
from securevfl.verified.check import Entries, Refused, check, faithful
from securevfl.verified.participants import Provable
from securevfl.verified.parties import World
from securevfl.verified.prove import Step
from securevfl.verified.rules import problems_of
from securevfl.verified.trace import OPENED
from securevfl.verified.values import tracing
from securevfl.verified.verdicts import (
    CLEAR,
    DP,
    OPEN,
    PROVED,
    Judge,
    Verdict,
    clear_of,
    judged,
    priced,
    scope_of,
)

FORMAT, VERSION = "securevfl certificate", 1
OUTPUTS_TELL = (
    "The proof does not bound what these outputs tell. Sums of embeddings are equations about each "
    "row, and as many as there are columns can give the columns away (docs/sums.md); gradients "
    "tell of labels."
)
NOT_COVERED = (
    "parties that deviate",
    "time that computing takes",
    "floats' side channels",
    "runs that end in an error",
    "other sizes and schedules",
    "what the outputs themselves tell",
)
_WIDTH = 2  # columns of each client: with equal ones two may change places in a refutation


@dataclass(frozen=True)
class Traced:
    """Subject of a trace: a protocol, its options, and public sizes.

    Attributes
    ----------
    protocol : str
        Its name.
    options : mapping
    parties, rows : int
    seed : int
        Of the public choices, such as batches.
    """

    protocol: str
    options: Mapping[str, Any]
    parties: int = 4
    rows: int = 8
    seed: int = 0

    def run(
        self, conditions: Conditions = NONE, *, inputs: int = 0, faults: Faults | None = None
    ) -> World:
        """Run it in the simulation, with a trace, and declare its outputs.

        Parameters
        ----------
        conditions : Conditions
        inputs : int
            Seed of columns, labels and initial weights, which are protected: two traces of
            different inputs have the same digest, or something public depends on them.
        faults : Faults, optional
            Parties that crash and come back.

        Raises
        ------
        ConfigurationError
            When the protocol is not written with protected values.
        """
        cls: Any = get_protocol(self.protocol)
        if not issubclass(cls, Provable):
            raise ConfigurationError(
                f"{self.protocol} is not written with protected values, so there is no trace to "
                "prove; derive its parties from Participant and itself from Provable "
                "(docs/proof.md)"
            )
        config = make_config(cls, {**cls.traced_options, **self.options})
        made: Any = cls(config, small_data(self.parties, self.rows, inputs), seed=self.seed)
        made.secrets = SecretSeed(inputs)
        world = World(made.field.modulus)
        world.may_abort = True
        transcript = Transcript(payloads=True)
        with tracing(world), one_thread():
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
        return world

    def problems(self) -> list[str]:
        """Rules that the protocol's own module breaks (`securevfl.verified.rules`).

        The library's own methods are held to rules by its tests, and not at each proof.
        """
        cls = get_protocol(self.protocol)
        if cls.__module__.startswith("securevfl."):
            return []
        source = inspect.getsourcefile(cls)
        return [] if source is None else problems_of(source)

    @property
    def sizes(self) -> str:
        """The public sizes that a verdict is for."""
        cls: Any = get_protocol(self.protocol)
        options = {**cls.traced_options, **self.options}
        said = ", ".join(f"{name} = {value}" for name, value in options.items())
        return f"N = {self.parties}, M = {self.rows} rows" + (f", {said}" if said else "")


def small_data(parties: int, rows: int, seed: int = 0) -> VerticalDataset:
    """Two classes and few columns. A proof is for all values, so these are any numbers."""
    rng = np.random.default_rng(seed)
    features = [rng.standard_normal((rows, _WIDTH)).astype(np.float32) for _ in range(parties)]
    labels = rng.permutation(np.arange(rows) % 2)
    return VerticalDataset.from_numpy(
        features,
        labels,
        test_features=[x[:2] for x in features],
        test_labels=labels[:2],
        scaling="none",
    )


def _sent(transcript: Transcript) -> list[tuple[int, int, str, bytes]]:
    """Sender, receiver, kind and bytes of each message, from the engine's own record."""
    assert transcript.payloads is not None
    columns = transcript.columns()
    rows = zip(columns["sender"], columns["receiver"], columns["kind"], strict=True)
    found = [(int(sender), int(to), str(kind)) for sender, to, kind in rows]
    payloads = map(wire.encode, transcript.payloads)
    return [(*head, payload) for head, payload in zip(found, payloads, strict=True)]


@dataclass(frozen=True)
class Proof:
    """Verdicts of a protocol's claims, and what they are for.

    Attributes
    ----------
    traced : Traced
    digest : str
        Hash of the trace: steps, messages and outputs, without values.
    verdicts : tuple of Verdict
    """

    traced: Traced
    digest: str
    verdicts: tuple[Verdict, ...]

    def certificate(self) -> dict[str, Any]:
        """The document that `check_certificate` reads."""
        t = self.traced
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
            "claims": [v.to_dict() for v in self.verdicts if v.sure],
        }


def prove_protocol(traced: Traced, *, conditions: Conditions = NONE, fresh: bool = True) -> Proof:
    """Trace a protocol and decide its claims.

    Parameters
    ----------
    traced : Traced
    fresh : bool
        Let a process of its own trace the protocol again, and check the certificate there. Nothing
        is PROVED without it.
    """
    world = traced.run(conditions)
    where = world.differs(traced.run(conditions, inputs=1))
    world.faults.extend(traced.problems())
    if where:
        world.faults.append(f"{where} is public, and changes with protected inputs")
    judge = Judge(world)
    verdicts = [judge.decide(some) for some in world.coalitions]
    proof = Proof(traced, world.digest(), tuple(verdicts))
    if not fresh or not any(v.sure for v in verdicts):
        return proof
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        path.write_text(json.dumps(proof.certificate()))
        accepted = _elsewhere(path)
    for verdict in verdicts:
        why = accepted.get(",".join(map(str, verdict.coalition)), "the check did not end")
        if verdict.sure and why:
            verdict.verdict, verdict.text = OPEN, f"refused anew: {why}"
            verdict.steps, verdict.clear = (), ()
    return proof


def _elsewhere(path: Path) -> dict[str, str]:
    """Answers of a fresh process on each claim: "" where it accepts it."""
    code = (
        "import json, sys; from securevfl.verified.proofs import check_certificate as c; "
        "print(json.dumps({','.join(map(str, k)): v or '' for k, v in c(sys.argv[1]).items()}))"
    )
    paths = os.pathsep.join(one for one in sys.path if one)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return dict(found)


def read_certificate(path: str | Path) -> dict[str, Any]:
    """A certificate as it was written; its claims are not checked.

    Raises
    ------
    ConfigurationError
        When the file is no certificate of this version.
    """
    try:
        read = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"check: {path} cannot be read: {error}") from None
    if not isinstance(read, dict) or read.get("format") != FORMAT:
        raise ConfigurationError(f"check: {path} is no certificate of securevfl")
    if read.get("version") != VERSION:
        raise ConfigurationError(
            f"check: {path} has version {read.get('version')}, and this library reads {VERSION}"
        )
    return read


def check_certificate(path: str | Path) -> dict[tuple[int, ...], str | None]:
    """Trace a certificate's protocol anew, and check each claim: None where it holds, else why.

    A claim that holds has the verdict and the scope that are written in it.

    Raises
    ------
    ConfigurationError
        When the file is no certificate of this version.
    """
    read = read_certificate(path)
    try:
        claims = [(tuple(map(int, c["coalition"])), c) for c in read["claims"]]
        traced = Traced(
            *(str(read["protocol"]), dict(read["options"]), int(read["parties"])),
            *(int(read["rows"]), int(read["seed"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"check: {path} lacks {error}") from None
    world, again = traced.run(inputs=2), traced.run(inputs=3)
    if {world.digest(), again.digest()} != {read["trace"]}:
        return dict.fromkeys((who for who, _ in claims), "the protocol's trace is another one")
    world.faults.extend(traced.problems())
    try:
        entries = Entries(world)
        faithful(entries)
    except Refused as why:
        return dict.fromkeys((who for who, _ in claims), str(why))
    return {who: _checked(world, entries, who, claim) for who, claim in claims}


def _checked(
    world: World, entries: Entries, coalition: Sequence[int], claim: Mapping[str, Any]
) -> str | None:
    """Reason why one claim of a certificate does not hold."""
    try:
        given = world.outputs_of(coalition)
        if [output.name for output in given] != list(claim["outputs"]):
            return "it is given other outputs than the protocol declares"
        steps = [step_of(one) for one in claim["steps"]]
        alone, _ = judged(entries, frozenset(coalition), given)
        if alone:
            return alone
        why, releases = check(world, coalition, given, steps, entries)
        if why is None and releases != claim["releases"]:
            return f"{releases} values are released, not {claim['releases']}"
        clear = clear_of(entries, frozenset(coalition), given)
        word = CLEAR if clear else DP if releases else PROVED
        price = priced(world, steps)
        prf = any(step.what == "prf" for step in steps)
        path = any(message.kind.startswith(OPENED) for message in world.messages)
        scope = scope_of(releases, price, clear, prf=prf, path=path)
        if why is None and (claim["verdict"], claim["scope"]) != (word, scope):
            return f"its verdict is another one: {scope}"
        return why
    except (KeyError, TypeError, ValueError, SecureVFLError) as error:
        return f"it cannot be read: {error}"


def step_of(written: Mapping[str, Any]) -> Step:
    """A step from a certificate."""
    part = written["part"]
    return Step(
        str(written["what"]),
        int(written["node"]),
        tuple(map(int, written["places"])),
        None if part is None else int(part),
        tuple(map(int, written["entries"])),
        str(written["text"]),
    )


def is_provable(name: str) -> bool:
    """Whether a protocol is written with protected values."""
    return issubclass(get_protocol(name), Provable)


def lines(proof: Proof) -> list[str]:
    """A proof for readers: claims, verdicts with their scope, outputs and assumptions."""
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
    found.append(f"Not covered: {', '.join(NOT_COVERED[:-1])}, and {NOT_COVERED[-1]}.")
    return found
