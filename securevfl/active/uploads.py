"""Signed uploads of result shares: a wrong one convicts its sender.

Honest uploads under one label are values of one polynomial below degree R. Where at most T parties
lie and d of n uploads are off a polynomial that all others are on, with T + d <= n - R, that is the
polynomial of the honest ones: two differ in more than n - R uploads. So the d are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.active.statements import Statement, Subject, digest, signed
from securevfl.engine import wire
from securevfl.errors import CorruptResultsError
from securevfl.field import LagrangeCode, error_correction
from securevfl.verified import bare_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Upload:
    """Values uploaded by a party, with its signature.

    Attributes
    ----------
    party : int
        Number of the sender.
    values, signature : ndarray, bytes
        Uploaded field elements, and the Ed25519 signature, 64 bytes.
    """

    party: int
    values: Array
    signature: bytes

    def statement(self, run: bytes, label: bytes) -> Statement:
        """The party's statement; an honest party signs only one upload for each label."""
        content = digest("uploaded", np.ascontiguousarray(self.values).tobytes())
        return Statement(subject_of(run, label, self.party), content, self.signature)


@dataclass(frozen=True)
class WrongUpload:
    """Uploads under one label, one of them wrong: evidence against its sender.

    The uploads reveal the result to a judge; they must not be published.

    Attributes
    ----------
    party : int
        Number of the accused sender.
    code : LagrangeCode
        Code with N, K, T and the degree of the masked result in the shares, which determines R.
    run, told, name, chain : bytes
        Name of the run, and parts of the label: the public part, the name of the set-up, and the
        hash chain of all earlier steps.
    uploads : tuple of Upload
        All uploads under the label, that of `party` among them.
    """

    party: int
    code: LagrangeCode
    run: bytes
    told: bytes
    name: bytes
    chain: bytes
    uploads: tuple[Upload, ...]


def subject_of(run: bytes, label: bytes, party: int) -> Subject:
    """Subject of an upload: its label takes the place of a dealing's start."""
    return Subject(run, 0, label, party, "upload", 0)


def encoded(code: LagrangeCode) -> bytes:
    """Bytes of a code; only equal codes give equal bytes."""
    numbers = (code.parties, code.segments, code.privacy, code.degree, code.field.modulus)
    return wire.encode((numbers, tuple(map(int, code.alphas)), tuple(map(int, code.betas))))


def label_of(code: bytes, told: bytes, name: bytes, chain: bytes) -> bytes:
    """Digest of the code that a judge decodes with (`encoded`), what was told, name and chain."""
    return digest("label", code, told, name, chain)


def text_of(run: bytes, label: bytes, party: int, values: Array) -> bytes:
    """Bytes that a party signs for an upload of `values` in a run under a label's digest."""
    said = Upload(party, values, b"").statement(run, label)
    return signed(said.subject, said.content)


def are_named(wrong: int, received: int, code: LagrangeCode) -> bool:
    """Whether wrong uploads among those received are attributed rightly: T + d <= n - R."""
    return code.privacy + wrong <= received - code.recovery_threshold(code.degree)


def guilty(evidence: WrongUpload, keys: Mapping[int, bytes]) -> bool:
    """Whether the party of the evidence signed a wrong upload."""
    code = evidence.code
    label = label_of(encoded(code), evidence.told, evidence.name, evidence.chain)
    own = [one.party for one in evidence.uploads]
    R = code.recovery_threshold(code.degree)
    if len(set(own)) < len(own) or not {*own} <= {*range(code.parties)} or len(own) <= R:
        return False
    if len({one.values.shape for one in evidence.uploads}) > 1:
        return False
    if not all(one.statement(evidence.run, label).is_valid(keys) for one in evidence.uploads):
        return False
    rows = np.stack([one.values for one in evidence.uploads]).reshape(len(own), -1)
    points = np.array([code.alphas[n] for n in own], np.uint64)
    try:
        good = error_correction.honest(code.field, points, rows, R)
    except CorruptResultsError:
        return False
    wrong = {n for n, right in zip(own, good, strict=True) if not right}
    return evidence.party in wrong and are_named(len(wrong), len(own), code)


def evidence_of(server: Any) -> tuple[WrongUpload, ...]:
    """Evidence against each holder whose wrong upload the server found."""
    code, made = server.public.code, list[WrongUpload]()
    for wrong, told, label, kept, run in server.caught:
        bare = [(j, bare_of(Y), bare_of(signature)) for j, (Y, signature) in kept.items()]
        uploads = tuple(Upload(*one) for one in bare)
        name, chain = (bare_of(one).tobytes() for one in label)
        made += [WrongUpload(j, code, run, told, name, chain, uploads) for j in wrong]
    return tuple(made)
