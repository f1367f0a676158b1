"""Origin of noise: the key of the operating system that each was made with.

Noise of a known distribution can still follow from something that the adversary knows, and no test
of it shows that. So every key that the operating system gave in the run is expanded: a release
that equals its formula under one of them, byte by byte, has noise that is as secret as the key; a
release that only resembles it was changed afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.noise.releases import NoisyRelease
from securevfl.audit.randomness import SEED_BYTES
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.engine import wire
from securevfl.field.sampling import Keystream, has_aes_unit
from securevfl.privacy.accountant import Released
from securevfl.privacy.mechanisms import gaussian, release_gradient, release_rows
from securevfl.protocols.base.messages import GaussianNoise
from securevfl.runs.threads import one_thread

_MANY = 1 << 24  # float64 entries of expanded keys that are held at once
_OTHER_ROUNDING = 2.0**-9  # of sigma
_ENOUGH = 8  # entries, of which no two keys give the same by chance


@dataclass(frozen=True)
class Origin:
    """Origin of the noise of a release.

    Attributes
    ----------
    release : NoisyRelease
    key : int or None
        Number of the key of which it, or something like it, was made; None for none that is known.
    equal : bool
        Whether every message is what the key gives, byte by byte.
    p_value : float
        Probability that noise of another origin resembles that of any key so much.
    """

    release: NoisyRelease
    key: int | None
    equal: bool
    p_value: float


class GivenKey:
    """A source that yields the keystream of one key, as the system's source does.

    Parameters
    ----------
    key : bytes
        32 bytes.
    """

    secure = False

    def __init__(self, key: bytes) -> None:
        self.key = key

    def keystream(self) -> Keystream:
        """The keystream under the key."""
        return Keystream(self.key, has_aes_unit())


def normals(key: bytes, size: int) -> np.ndarray:
    """Standard normal values that the library makes of a key, (size,)."""
    return gaussian((size,), GivenKey(key))


def library_sigma(noise: GaussianNoise) -> float:
    """Standard deviation by the library's accountant, to the last bit: messages are of this one.

    Whether it is what epsilon and delta ask for is for `securevfl.audit.noise.calibration` to say.
    """
    return Released(noise.epsilon, noise.delta, noise.clip).sigma


def system_keys(asked: Sequence[bytes]) -> list[bytes]:
    """Those of the bytes from the operating system that key a stream."""
    return [key for key in asked if len(key) == SEED_BYTES]


def origins(
    run: RecordedRun, releases: Sequence[NoisyRelease], keys: Sequence[bytes]
) -> list[Origin]:
    """Origin of each release, in their order."""
    found: dict[int, Origin] = {}
    shapes: dict[tuple[int, ...], list[int]] = {}
    for number, one in enumerate(releases):
        shapes.setdefault(one.residual.shape, []).append(number)
    with one_thread():
        for numbers in shapes.values():
            noise = np.stack([releases[n].residual.reshape(-1) for n in numbers])
            closest, likest, p_values = _nearest(noise, keys)
            for place, n in enumerate(numbers):
                best = (int(closest[place]), int(likest[place]), float(p_values[place]))
                found[n] = _origin(run, releases[n], keys, *best)
    return [found[n] for n in range(len(releases))]


def _origin(
    run: RecordedRun,
    release: NoisyRelease,
    keys: Sequence[bytes],
    closest: int,
    likest: int,
    p_value: float,
) -> Origin:
    if closest >= 0 and _equals(run, release, keys[closest]):
        return Origin(release, closest, True, p_value)
    return Origin(release, likest if likest >= 0 else None, False, p_value)


def _nearest(noise: np.ndarray, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The closest key of each noise, the one it is most correlated with, and that one's p value."""
    from scipy.stats import norm

    closest = np.full(len(noise), -1)
    likest = closest.copy()
    distance, largest = np.full(len(noise), np.inf), np.zeros(len(noise))
    step = max(1, _MANY // max(1, noise.shape[1]))
    for start in range(0, len(keys), step):
        made = [normals(key, noise.shape[1]) for key in keys[start : start + step]]
        table = np.stack(made)
        squares = (table * table).sum(1)
        products = noise @ table.T
        # |x - t|^2 less |x|^2, which is the same for all keys t. For another test, x t / |t| is a
        # standard normal number unless x is made of t.
        far = squares - 2 * products
        z = np.abs(products) / np.sqrt(np.maximum(squares, np.finfo(float).tiny))
        rows = np.arange(len(noise))
        nearer, liker = far.argmin(1), z.argmax(1)
        better = far[rows, nearer] < distance
        closest[better] = nearer[better] + start
        distance[better] = far[rows, nearer][better]
        better = z[rows, liker] > largest
        likest[better] = liker[better] + start
        largest[better] = z[rows, liker][better]
    return closest, likest, np.minimum(1.0, 2 * norm.sf(largest) * max(1, len(keys)))


def _equals(run: RecordedRun, release: NoisyRelease, key: bytes) -> bool:
    """Whether all messages of a release are what its formula gives under a key."""
    noise, source = release.noise, GivenKey(key)
    exact, bound, sigma = release.gradient, noise.clip, library_sigma(release.noise)
    whole = (
        release_gradient(exact, release.samples, bound=bound, sigma=sigma, source=source)
        if noise.mean_loss
        else release_rows(exact, bound=bound, sigma=sigma, source=source)
    )
    for message in release.messages:
        part = noise.part(run, message.key, whole) if noise.part else whole
        payload = noise.frame(run, message.key, part) if noise.frame else part
        if wire.encode(payload) != message.content:
            return False
    return True


def faults(
    run: RecordedRun, found: Sequence[Origin], keys: Sequence[bytes], level: float
) -> Iterator[tuple[float, str]]:
    """Faults of the noise of known keys: p value, and words.

    Parameters
    ----------
    run : RecordedRun
    found : sequence of Origin
    keys : sequence of bytes
    level : float
        Probability that noise of another origin is taken for that of a key.
    """
    known = [one for one in found if one.key is not None
             and (one.equal or one.p_value * len(found) < level)]  # fmt: skip
    for one in known:
        assert one.key is not None
        if not one.equal and _tampered(one, keys[one.key]):
            yield (
                min(1.0, one.p_value * len(found)),
                f"round {one.release.key.round}: {one.release.key.kind!r} has noise that was drawn "
                "in the run, but is not the clipped rows with that noise",
            )
    often = Counter(one.key for one in known if one.release.residual.size >= _ENOUGH)
    twice = [key for key, times in often.items() if times > 1]
    if twice:
        yield 0.0, f"one noise was used in {often[twice[0]]} releases"
    noised = {id(message) for one in found for message in one.release.messages}
    rest = b"\n".join(m.content for m in run.messages if id(m) not in noised)
    if any(keys[one.key] in rest for one in known if one.key is not None):
        yield 0.0, "the key of a noise is in a message"


def _tampered(one: Origin, key: bytes) -> bool:
    """Whether a release is off by more than another rounding of it would be."""
    residual = one.release.residual
    made = normals(key, residual.size).reshape(residual.shape)
    return bool(np.abs(residual - made).max() > _OTHER_ROUNDING)
