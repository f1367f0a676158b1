"""Objects by name: those of this package, and those that installed packages add by entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Generic, TypeVar

from securevfl.errors import ConfigurationError, UnknownNameError

_T = TypeVar("_T")


class Registry(Generic[_T]):
    """Objects of one kind by name, found when they are first asked for.

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
    ) -> None:
        self.group = group
        self.what = what
        self._built_in = built_in
        self._accepts = accepts
        self._name_of = name_of

    def get(self, name: str) -> _T:
        """The object of a name.

        Raises
        ------
        UnknownNameError
            With the nearest names.
        """
        found = self.all()
        if name not in found:
            raise UnknownNameError(self.what, name, found)
        return found[name]

    def all(self) -> Mapping[str, _T]:
        """All objects by name, the library's own first.

        Raises
        ------
        ConfigurationError
            When an entry point cannot be loaded, is of another kind, calls itself otherwise, or
            takes a name that is taken.
        """
        return self._found

    def forget(self) -> None:
        """Look again at the next call, as after an installation."""
        self.__dict__.pop("_found", None)

    @cached_property
    def _found(self) -> Mapping[str, _T]:
        from importlib.metadata import entry_points

        found: dict[str, _T] = dict(self._built_in())
        for entry in entry_points(group=self.group):
            where = f"entry point {entry.name!r} of group {self.group}: {entry.value}"
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
            # A package that lies on the path twice names the same object twice.
            if found.setdefault(entry.name, thing) is not thing:
                raise ConfigurationError(f"{where}: there is a {self.what} of that name already")
        return found


def _lacking(thing: object) -> str:
    """Names that an abstract class leaves undefined, in words; empty for anything else."""
    names = sorted(getattr(thing, "__abstractmethods__", ())) if isinstance(thing, type) else []
    return f": it does not define {', '.join(names)}" if names else ""
