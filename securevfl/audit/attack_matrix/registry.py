"""Attacks of the matrix by name, from this library and installed packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from securevfl.audit.attack_matrix import on_embeddings, on_labels, on_shares, on_spans
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import Result
from securevfl.plugins import Registry


@runtime_checkable
class Attack(Protocol):
    """An attempt of one adversary to recover one asset from its view.

    An entry point of the group ``securevfl.attacks`` names an object with these members, under the
    attack's name.
    """

    @property
    def name(self) -> str:
        """Name of the attack, also of its row in the matrix."""

    @property
    def against(self) -> str:
        """The adversary: "client", "server" or "server + T clients"."""

    @property
    def asset(self) -> str:
        """Asset under attack: "labels", "features" or "model"."""

    def run(self, seen: AttackCase, settings: AttackSettings) -> Result:
        """Attack one observed run.

        Parameters
        ----------
        seen : AttackCase
            Observed run (`AttackCase.observed`), and a random stream for the attacker's choices.
        settings : AttackSettings
            Knowledge and effort of all attackers besides their views.

        Returns
        -------
        Outcome or NoView
            A `RunError` counts as a failed attack, not as a missing view.
        """


@dataclass(frozen=True)
class BuiltIn:
    """Built-in attack: a function with its description."""

    name: str
    against: str
    asset: str
    attempt: Callable[[AttackCase], Result]

    def run(self, seen: AttackCase, settings: AttackSettings) -> Result:
        """Attack one run; `settings` must be those of the case and are not read here."""
        return self.attempt(seen)


_BUILT_IN = (
    BuiltIn("gradient norm", "client", "labels", on_labels.gradient_norm),
    BuiltIn("gradient clusters", "client", "labels", on_labels.gradient_clusters),
    BuiltIn("gradient directions", "client", "labels", on_labels.gradient_directions),
    BuiltIn("model completion", "client", "labels", on_labels.model_completion),
    BuiltIn(
        "gradient directions, T + 1 clients",
        "T + 1 clients",
        "labels",
        on_labels.gradient_directions_pooled,
    ),
    BuiltIn("model stealing", "server", "model", on_embeddings.stealing),
    BuiltIn("inversion", "server", "features", on_embeddings.inversion),
    BuiltIn("equality solving", "server", "features", on_embeddings.equality_solving),
    BuiltIn("inversion of sums", "server", "features", on_embeddings.inversion_of_sums),
    BuiltIn(
        "equality solving of sums", "server", "features", on_embeddings.equality_solving_of_sums
    ),
    BuiltIn(
        "equality solving of sums, secret seed unknown",
        "server",
        "features",
        on_embeddings.equality_solving_without_seed,
    ),
    BuiltIn("span of sums", "server", "features", on_embeddings.span_of_sums),
    BuiltIn("completion of sums", "server", "features", on_embeddings.completion_of_sums),
    BuiltIn("binary columns of sums", "server", "features", on_embeddings.binary_columns),
    BuiltIn("squares", "server", "features", on_spans.squares),
    BuiltIn("inner products and other rows", "server", "features", on_spans.other_rows),
    BuiltIn("rank of uploads", "server", "features", on_shares.rank_game),
    BuiltIn("server + T clients", "server + T clients", "features", on_shares.server_and_clients),
    BuiltIn("shares of T + 1 clients", "T + 1 clients", "features", on_shares.shares_above),
    BuiltIn("shares of K + T clients", "K + T clients", "features", on_shares.shares_all),
    BuiltIn("short values of T + 1 clients", "T + 1 clients", "features", on_shares.short_values),
)

ATTACKS: Registry[Attack] = Registry(
    "securevfl.attacks",
    "attack",
    lambda: {attack.name: attack for attack in _BUILT_IN},
    lambda thing: isinstance(thing, Attack),
    lambda attack: attack.name,
)
