"""Names of variants: a protocol with options, written ``split:quantized=true,segments=2``."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.errors import ConfigurationError


def parse_variant(text: str) -> tuple[str, dict[str, str]]:
    """Protocol name and options, as texts, of a variant such as ``NAME:option=value``.

    ConfigurationError when a part is no ``key=value``, or a key occurs twice.

    Examples
    --------
    >>> parse_variant("NAME:quantized=true,segments=2")
    ('NAME', {'quantized': 'true', 'segments': '2'})
    """
    name, _, rest = text.partition(":")
    return name, parse_pairs(rest.split(",") if rest else (), what=f"variant {text!r}")


def parse_pairs(pairs: Iterable[str], *, what: str) -> dict[str, str]:
    """Values by key of ``key=value`` texts; a hyphen in a key counts as an underscore.

    ConfigurationError for another form, or a key given twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not (separator and key):
            raise ConfigurationError(f"{what}: {pair!r} is not of the form key=value")
        if key in found:
            raise ConfigurationError(f"{what}: {key} is given twice; leave out one of them")
        found[key] = value.strip()
    return found
