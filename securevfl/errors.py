"""The exceptions of securevfl.

::

    SecureVFLError
    +-- ConfigurationError (ValueError)    the user can correct it before a run: exit code 2
    |   +-- FieldError                     a modulus, point or element that the arithmetic refuses
    |   +-- DataError                      rows, columns, labels or files that cannot be used
    |   +-- UnknownNameError               a protocol, data set or option that does not exist
    |   +-- MissingPackageError (ImportError)  a package of an extra that is not installed
    |   +-- WouldOverflowError             a configuration whose values could wrap modulo p
    |   +-- WouldNotFitError               a run whose predicted memory exceeds what there is
    |   +-- PrivacyError                   a request that a protocol's guarantee does not allow
    +-- RunError (RuntimeError)            a run that failed: exit code 1
        +-- NotEnoughResultsError          fewer results than the recovery threshold
        +-- CorruptResultsError            results that disagree beyond what can be corrected
        +-- RangeError                     a value left its enforced range during a run
        +-- DivergedError                  a loss or a score became infinite or NaN
        +-- StalledError                   every party waits and nothing is on its way
        +-- CheckpointError                a checkpoint that is damaged, foreign or from elsewhere
        +-- WireError                      bytes that are no message of ours
        +-- SealError                      a sealed message that was changed, replayed or is foreign
        +-- UndeclaredMessageError         a message that the protocol did not declare
        +-- ProtocolError                  a message whose content is not what the protocol says
        +-- CarrierError                   a relay that refuses, or a peer that takes no messages

Every message names the request, the violated requirement with its numbers, and what to change.
"""

from __future__ import annotations

from collections.abc import Iterable


class SecureVFLWarning(UserWarning):
    """A condition that the user should know about; the work continues."""


class SecureVFLError(Exception):
    """Base of every exception that securevfl raises on purpose."""


class ConfigurationError(SecureVFLError, ValueError):
    """A request that cannot be carried out; nothing was started."""


class MissingPackageError(ConfigurationError, ImportError):
    """A package that only an extra brings, and that is not installed."""


def needs(what: str, extra: str, *packages: str) -> None:
    """Raise an error unless the packages of an extra, which feature `what` needs, are installed.

    It stands before their import, or before work that would be lost without them, and imports none.

    Parameters
    ----------
    what : str
        Name of the feature, for the error.
    extra : str
        Name of an extra in pyproject.toml.
    *packages : str
        Names by which they are imported, none with a dot.

    Raises
    ------
    MissingPackageError
        It names the absent packages and the command that installs them.
    """
    from importlib.util import find_spec

    if absent := [name for name in packages if find_spec(name) is None]:
        names = " and ".join(absent)
        raise MissingPackageError(
            f"{what}: {names} must be installed; pip install 'securevfl[{extra}]'"
        )


class FieldError(ConfigurationError):
    """A modulus, an evaluation point or a field element that the arithmetic refuses."""


class DataError(ConfigurationError):
    """Rows, columns, labels or files that cannot be used as they are."""


class UnknownNameError(ConfigurationError):
    """A protocol, data set or option name that does not exist.

    Parameters
    ----------
    what : str
        The kind of thing, in words ("protocol", "data set", "option").
    name : str
        The name that was asked for.
    known : iterable of str
        The names that exist; the nearest ones are suggested.

    Attributes
    ----------
    near : list of str
        The suggested names; empty if none is similar.
    """

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        import difflib

        names = sorted(known)
        bare = {one.lstrip("-").lower(): one for one in names}  # hyphens of flags are no likeness
        word = name.lstrip("-").lower()
        likely = difflib.get_close_matches(word, bare, n=2, cutoff=0.6)
        ratios = [difflib.SequenceMatcher(a=one, b=word).ratio() for one in likely]
        # The second is told where it is nearly as likely as the first.
        self.near = [
            bare[one] for one, r in zip(likely, ratios, strict=True) if r > ratios[0] - 0.1
        ]
        near = " or ".join(self.near)
        hint = f"did you mean {near}?" if near else f"known: {', '.join(names)}."
        super().__init__(f"unknown {what} {name!r}: {hint}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Sentence " Did you mean ...?" for the most similar known name; empty if none is similar.

    Examples
    --------
    >>> did_you_mean("affairs", ["age", "affair"]), did_you_mean("y", ["age"])
    (" Did you mean 'affair'?", '')
    """
    import difflib

    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class WouldOverflowError(ConfigurationError):
    """A configuration whose exact values could exceed (p - 1) / 2 and wrap."""


class WouldNotFitError(ConfigurationError):
    """A run whose predicted memory exceeds the available memory."""


class PrivacyError(ConfigurationError):
    """A request that would void a guarantee that the protocol claims."""


class RunError(SecureVFLError, RuntimeError):
    """A run that started and could not go on."""


class NotEnoughResultsError(RunError):
    """Fewer results than the recovery threshold; nothing was decoded."""


class CorruptResultsError(RunError):
    """Results that disagree beyond what the code can detect or correct."""


class RangeError(RunError):
    """A value that left its permitted range during a run; the attempt stopped before sending it."""


class DivergedError(RunError):
    """A loss of training or pre-training, or a score, that is infinite or NaN."""


class StalledError(RunError):
    """A run in which every party waits and no message is on its way."""


class CheckpointError(RunError):
    """A checkpoint that is damaged, of another version, or of another run."""


class WireError(RunError):
    """Bytes that do not decode to a message of this library."""


class SealError(RunError):
    """A sealed message that was changed, replayed, misdirected, or cannot be opened."""


class UndeclaredMessageError(RunError):
    """A message of a kind, or between roles, that the protocol did not declare; it was not sent."""


class ProtocolError(RunError):
    """A message whose content breaks the protocol; nothing was computed from it."""


class CarrierError(RunError):
    """A relay that refuses a party or is not the expected one, or a peer that takes no messages."""
