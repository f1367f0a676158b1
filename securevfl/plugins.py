"""Objects by name: those of this package, and those that installed packages add by entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from securevfl.errors import ConfigurationError, SecureVFLWarning, UnknownNameError

_T = TypeVar("_T")


class Registry(Generic[_T]):
    """Registry of objects of one kind by name, found on first use.

    Parameters
    ----------
    group : str
        Entry-point group, such as ``securevfl.attacks``. An entry's name is the object's name.
    what : str
        The kind of thing, in words ("attack"), for errors.
    built_in : callable
        Makes the mapping of the library's own objects; called once.
    accepts : callable
        Whether a loaded object is of the kind.
    name_of : callable, optional
        The name that an object gives itself, which must be that of its entry point.
    all_needed : bool
        Whether `all` refuses broken entry points, for whatever goes over all objects would be
        incomplete without them. Else they are left out with a warning, and only their own names
        are refused.

    Examples
    --------
    >>> numbers = Registry("a.group", "number", lambda: {"one": 1}, lambda x: isinstance(x, int))
    >>> numbers.get("one")
    1
    """

    def __init__(
        self,
        group: str,
        what: str,
        built_in: Callable[[], Mapping[str, _T]],
        accepts: Callable[[object], bool],
        name_of: Callable[[_T], str] | None = None,
        *,
        all_needed: bool = True,
    ) -> None:
        self.group = group
        self.what = what
        self._built_in = built_in
        self._accepts = accepts
        self._name_of = name_of
        self._all_needed = all_needed

    def get(self, name: str) -> _T:
        """Object with this name.

        Raises
        ------
        UnknownNameError
            With the nearest names.
        ConfigurationError
            When an entry point of that name cannot be loaded, gives an object of another kind or
            name, or has a name that is taken.
        """
        self.refuse_broken(name)
        found, broken = self._entries
        if name not in found:
            raise UnknownNameError(self.what, name, [*found, *broken])
        return found[name]

    def refuse_broken(self, name: str) -> None:
        """Raise ConfigurationError for a name whose entry point is broken."""
        broken = self._entries[1]
        if name in broken:
            raise broken[name]

    def all(self) -> Mapping[str, _T]:
        """All objects by name, the library's own first.

        Raises
        ------
        ConfigurationError
            When any entry point cannot be loaded, is of another kind, or has another or taken name.
        """
        found, broken = self._entries
        if self._all_needed and broken:
            raise next(iter(broken.values()))
        return found

    def forget(self) -> None:
        """Search again at the next call, for example after an installation."""
        self.__dict__.pop("_entries", None)

    @cached_property
    def _entries(self) -> tuple[dict[str, _T], dict[str, ConfigurationError]]:
        """Objects by name, and errors for names that cannot be loaded."""
        from importlib.metadata import entry_points

        found: dict[str, _T] = dict(self._built_in())
        broken: dict[str, ConfigurationError] = {}
        for entry in entry_points(group=self.group):
            try:
                thing = self._loaded(entry)
                # A package that lies on the path twice names the same object twice.
                if found.setdefault(entry.name, thing) is not thing:
                    raise ConfigurationError(
                        f"{_place(entry, self.group)}: there is a {self.what} of that name already"
                    )
            except ConfigurationError as error:
                broken[entry.name] = error
                if not self._all_needed:
                    warnings.warn(f"left out: {error}", SecureVFLWarning, stacklevel=3)
        return found, broken

    def _loaded(self, entry: Any) -> _T:
        """Object of an entry point, checked for its kind and name."""
        where = _place(entry, self.group)
        try:
            thing = entry.load()
        except Exception as error:  # whatever somebody else's module raises
            remedy = "Define that name" if isinstance(error, AttributeError) else "Reinstall"
            raise ConfigurationError(
                f"{where} cannot be loaded: {type(error).__name__}: {error}. {remedy}, or "
                "uninstall the package that declares it"
            ) from error
        if not self._accepts(thing):
            raise ConfigurationError(f"{where} is no {self.what}{_lacking(thing)}")
        own = entry.name if self._name_of is None else self._name_of(thing)
        if own != entry.name:
            raise ConfigurationError(
                f"{where} calls itself {own!r}; give entry point and {self.what} one name"
            )
        return cast("_T", thing)


def _place(entry: Any, group: str) -> str:
    """Phrase for an entry point and its package."""
    package = getattr(getattr(entry, "dist", None), "name", None)
    of = "" if package is None else f" of the package {package}"
    return f"entry point {entry.name!r} of group {group}{of}: {entry.value}"


def _lacking(thing: object) -> str:
    """Phrase for the names that an abstract class leaves undefined; "" for other objects."""
    names = sorted(getattr(thing, "__abstractmethods__", ())) if isinstance(thing, type) else []
    return f": it does not define {', '.join(names)}" if names else ""
