"""The judge: convicts a party by its own signatures only.

Missing evidence convicts nobody. A message that was not sent, or lacks a valid signature, ends in a
dispute of two parties, either of which may be at fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.active.dealing import Array, Dealt, Form, Proof, fault, is_signed
from securevfl.active.statements import RUN, Statement, Subject
from securevfl.active.uploads import Upload, WrongUpload, guilty
from securevfl.errors import ConfigurationError, RunError
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.prime_field import PrimeField
from securevfl.writing import write_durably

VERSION = 1
CHAINED = "step"  # kind of dealings of which each goes on with the one before
_LABEL = "run", "told", "name", "chain"  # of a wrong upload


@dataclass(frozen=True)
class BadDealing:
    """A dealing signed by its dealer that fails the holder's check.

    Attributes
    ----------
    form, place : Form, int
        Parameters of the dealing, and number of the holder.
    share : ndarray (rows, columns)
        The holder's share of the dealer's values; publishing the evidence reveals it.
    proof : Proof
        Signed payload parts that the holder received beside the share.
    """

    form: Form
    place: int
    share: Array
    proof: Proof


@dataclass(frozen=True)
class TwoStories:
    """Two statements of one signer that no honest party makes together.

    Attributes
    ----------
    one, other : Statement
        Statements on one subject, or on subjects that differ only in the incarnation; or dealings
        of two consecutive steps of one start, the second of which does not continue the first's
        chain.
    """

    one: Statement
    other: Statement


Evidence = BadDealing | TwoStories | WrongUpload


def run_of(evidence: Evidence) -> bytes:
    """Name of the run in evidence: digest of its manifest, or `RUN`."""
    if isinstance(evidence, WrongUpload):
        return evidence.run
    own = evidence.one if isinstance(evidence, TwoStories) else evidence.proof.statement
    return own.subject.run


def signed_with(evidence: Evidence) -> str:
    """Phrase for the keys that verify the evidence's signatures."""
    run = run_of(evidence)
    return RUN.decode() if run == RUN else f"identity of the manifest {run.hex()[:16]}"


@dataclass(frozen=True)
class Verdict:
    """A guilty party: it signed what no honest party signs.

    Attributes
    ----------
    party, why : int, str
        Number of the party, and a sentence on what it signed.
    """

    party: int
    why: str


class LieFoundError(RunError):
    """A party signed what no honest party signs, so the run ends.

    Attributes
    ----------
    party, why : int, str
        Number of the party, and a sentence on what it signed.
    evidence : BadDealing, TwoStories or WrongUpload
        Evidence that anybody can check with the parties' public keys.
    """

    def __init__(self, party: int, why: str, evidence: Evidence, kept: Path | None = None) -> None:
        where = "" if kept is None else f"; it is in {kept}"
        super().__init__(f"party {party} lied: {why}. The evidence is under its signature{where}")
        self.party, self.why, self.evidence, self._kept = party, why, evidence, kept

    def __reduce__(self) -> tuple[Any, ...]:
        """Arguments with which another process recreates the error."""
        return LieFoundError, (self.party, self.why, self.evidence, self._kept)


def judge(evidence: Evidence, keys: Mapping[int, bytes]) -> Verdict | None:
    """The guilty party; None if the evidence proves nothing.

    Parameters
    ----------
    evidence : BadDealing, TwoStories or WrongUpload
        Evidence of a wrong dealing, two contradicting statements, or a wrong upload.
    keys : mapping of int to bytes
        Public keys (Ed25519) by party, from the manifest and never from the evidence.
    """
    if isinstance(evidence, TwoStories):
        return _two_stories(evidence, keys)
    if isinstance(evidence, WrongUpload):
        why = "an upload is not on the polynomial of the others under its label"
        return Verdict(evidence.party, why) if guilty(evidence, keys) else None
    subject = evidence.proof.statement.subject
    form, place, share, proof = evidence.form, evidence.place, evidence.share, evidence.proof
    if not 0 <= place < form.code.parties:
        return None
    if not is_signed(form, keys, subject, place, share, proof):
        return None
    why = fault(form, subject, place, share, proof)
    where = f"{subject.kind!r} of step {subject.step} to party {place}"
    return Verdict(subject.signer, f"{where}: {why}") if why else None


def _two_stories(evidence: TwoStories, keys: Mapping[int, bytes]) -> Verdict | None:
    one, other = evidence.one, evidence.other
    if not (one.is_valid(keys) and other.is_valid(keys)):
        return None
    if _breaks_chain(one, other):
        subject = other.subject
        why = f"{subject.kind!r} of step {subject.step} goes on with other steps than it was told"
        return Verdict(subject.signer, f"{why}, under one signature")
    if not one.contradicts(other):
        return None
    first, second = Dealt.read(one.content), Dealt.read(other.content)
    if first is not None and second is not None and first.is_beside(second):
        return None
    subject = one.subject
    lives = " and ".join(map(str, dict.fromkeys((subject.life, other.subject.life))))
    what = f"{subject.kind!r} of step {subject.step}, life {lives}"
    return Verdict(subject.signer, f"{what}: two stories under one signature")


def _breaks_chain(one: Statement, other: Statement) -> bool:
    """Whether the second statement, of the next step, continues a different chain of dealings."""
    following = replace(one.subject, step=one.subject.step + 1)
    if one.subject.kind != CHAINED or following != other.subject:
        return False
    first, second = Dealt.read(one.content), Dealt.read(other.content)
    return first is not None and second is not None and second.before != first.after


def write_evidence(path: Path, evidence: Evidence) -> None:
    """Write evidence as JSON; on a bad dealing it contains the holder's secret share."""
    write_durably(path, text_of(evidence), mode=0o600)


def text_of(evidence: Evidence) -> str:
    """Evidence as JSON; equal for equal evidence."""
    about = {"version": VERSION, "signed_with": signed_with(evidence)}
    return json.dumps({**about, **_written(evidence)}, indent=1) + "\n"


def read_evidence(path: Path) -> Evidence:
    """Evidence read from a file.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, or contains no evidence of this version.
    """
    try:
        read = json.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"evidence: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"evidence: {path} is no evidence of securevfl: {error}") from None
    version = read.get("version") if isinstance(read, dict) else None
    if version != VERSION:
        raise ConfigurationError(
            f"evidence: {path} has version {version}, and version {VERSION} is read here"
        )
    try:
        return _read(read)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"evidence: {path} is incomplete or damaged: {error}") from None


def _written(evidence: Evidence) -> dict[str, Any]:
    if isinstance(evidence, TwoStories):
        return {"one": _of_statement(evidence.one), "other": _of_statement(evidence.other)}
    if isinstance(evidence, WrongUpload):
        uploads = [
            {"party": one.party, "values": one.values.tolist(), "signature": one.signature.hex()}
            for one in evidence.uploads
        ]
        return {
            "tells": "the sums of its label, to whoever reads it: it is not for the public",
            "upload of": evidence.party,
            "code": _of_code(evidence.code),
            **{name: getattr(evidence, name).hex() for name in _LABEL},
            "uploads": uploads,
        }
    form, proof = evidence.form, evidence.proof
    return {
        "form": {
            **_of_code(form.code),
            "shape": list(form.shape),
            "repetitions": form.repetitions,
            "constant": form.constant,
        },
        "holder": evidence.place,
        "share": evidence.share.tolist(),
        "blind": proof.blind.tolist(),
        "values": proof.values.tolist(),
        "path": [one.hex() for one in proof.path],
        "nonce": proof.nonce.hex(),
        "statement": _of_statement(proof.statement),
    }


def _of_code(code: LagrangeCode) -> dict[str, Any]:
    return {
        "prime": code.field.modulus,
        "parties": code.parties,
        "segments": code.segments,
        "privacy": code.privacy,
        "degree": code.degree,
        "alphas": [int(one) for one in code.alphas],
        "betas": [int(one) for one in code.betas],
    }


def _of_statement(statement: Statement) -> dict[str, Any]:
    subject = statement.subject
    return {
        "run": subject.run.hex(),
        "life": subject.life,
        "start": subject.start.hex(),
        "signer": subject.signer,
        "kind": subject.kind,
        "step": subject.step,
        "content": statement.content.hex(),
        "signature": statement.signature.hex(),
    }


def _read(read: Mapping[str, Any]) -> Evidence:
    if "one" in read:
        return TwoStories(_statement(read["one"]), _statement(read["other"]))
    if "upload of" in read:
        code = _code(read["code"])
        uploads = tuple(
            Upload(
                int(one["party"]),
                code.field.elements(np.array(one["values"], object), "values"),
                bytes.fromhex(one["signature"]),
            )
            for one in read["uploads"]
        )
        label = {name: bytes.fromhex(read[name]) for name in _LABEL}
        return WrongUpload(int(read["upload of"]), code, uploads=uploads, **label)
    own = read["form"]
    code = _code(own)
    field = code.field
    rows, columns = own["shape"]
    form = Form(code, (int(rows), int(columns)), int(own["repetitions"]), bool(own["constant"]))
    share, blind, values = (
        field.elements(np.array(read[name], object), name) for name in ("share", "blind", "values")
    )
    proof = Proof(
        blind,
        values,
        tuple(bytes.fromhex(one) for one in read["path"]),
        bytes.fromhex(read["nonce"]),
        _statement(read["statement"]),
    )
    return BadDealing(form, int(read["holder"]), share, proof)


def _code(own: Mapping[str, Any]) -> LagrangeCode:
    return LagrangeCode(
        PrimeField(int(own["prime"])),
        parties=int(own["parties"]),
        segments=int(own["segments"]),
        privacy=int(own["privacy"]),
        degree=int(own["degree"]),
        alphas=own["alphas"],
        betas=own["betas"],
    )


def _statement(read: Mapping[str, Any]) -> Statement:
    subject = Subject(
        bytes.fromhex(read["run"]),
        int(read["life"]),
        bytes.fromhex(read["start"]),
        int(read["signer"]),
        str(read["kind"]),
        int(read["step"]),
    )
    return Statement(subject, bytes.fromhex(read["content"]), bytes.fromhex(read["signature"]))
