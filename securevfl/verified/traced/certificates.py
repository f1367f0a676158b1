"""Certificates in Python: what a file says was proved, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from securevfl.errors import ConfigurationError
from securevfl.verified.prove import Step
from securevfl.verified.traced.kept import step_of
from securevfl.verified.traced.proofs import check_certificate, read_certificate
from securevfl.verified.verdicts import Verdict, who


@dataclass(frozen=True)
class Certificate:
    """Certificate file of ``securevfl verify NAME --certificate FILE``.

    The contents are unverified until `check` accepts them.

    Attributes
    ----------
    path : Path
        The file.
    protocol, sizes : str
        Name of the traced protocol, and the traced sizes.
    schedules : tuple of str
        Schedules of the traces: which parties were late or down.
    verdicts : tuple of Verdict
        Verdict on each coalition: `claim`, `scope`, `outputs`, `assumptions`, `judge`, `clear`.

    Examples
    --------
    ``certificate = Certificate.load("proof.json")``, then ``certificate.check()`` and
    ``certificate.moves({-1, 0})``.
    """

    path: Path
    protocol: str
    sizes: str
    schedules: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    _proofs: Mapping[str, Any]

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """The certificate in a file, not checked yet.

        ConfigurationError if the file is no certificate of this version.
        """
        read = read_certificate(path)
        try:
            verdicts = tuple(map(_verdict, read["claims"]))
            names = tuple(map(str, read["schedules"]))
            proofs = {name: read["proofs"][digest] for name, digest in read["schedules"].items()}
            return cls(
                *(Path(path), str(read["protocol"]), str(read["sizes"])), names, verdicts, proofs
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"check: {path} lacks {error}") from None

    @property
    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Colluding parties of each verdict; the server is -1."""
        return tuple(frozenset(one.coalition) for one in self.verdicts)

    def of(self, coalition: Iterable[int]) -> Verdict:
        """The verdict on a coalition.

        ConfigurationError if the certificate has no verdict on the coalition.
        """
        some = frozenset(coalition)
        for one in self.verdicts:
            if frozenset(one.coalition) == some:
                return one
        raise ConfigurationError(
            f"certificate: nothing is proved of {who(some)} in {self.path}; there are "
            f"{', '.join(who(one) for one in self.coalitions)}"
        )

    def moves(self, coalition: Iterable[int], schedule: str | None = None) -> tuple[Step, ...]:
        """Steps of the proof under a schedule, the first if not given; `text` is for readers."""
        some = list(self.of(coalition).coalition)
        proofs = self._proofs[schedule or self.schedules[0]]
        return tuple(step_of(s) for one in proofs if one["coalition"] == some for s in one["steps"])

    def check(self) -> dict[str, str | None]:
        """Reason for refusal by coalition, in words; None if the proof holds.

        The protocol is traced again, under all schedules, and each step is applied, without search.
        This runs the protocol's code, which must be installed. ConfigurationError if the file is no
        certificate of this version any more.
        """
        return {who(one): why for one, why in check_certificate(self.path).items()}


def _verdict(claim: Mapping[str, Any]) -> Verdict:
    known = {one.name for one in fields(Verdict)} - {"steps", "messages"}
    listed: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in claim.items() if n in known
    }
    return Verdict(**listed)
