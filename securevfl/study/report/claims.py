"""What a run's protocol claims, what became of the claims, and how much privacy was spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.protocols.protocol import find_protocols
from securevfl.study.catalogue import describe_protocol
from securevfl.study.report.loading import Record

NOT_VERIFIED = "not verified"
NO_CLAIM = "not protected"
_NOT_COMPARED = ("batch_rows", "seed")  # a verification has small batches of its own


def claims(record: Record) -> list[dict[str, Any]]:
    """The claims of a run, each with its verdict.

    A claim of the notion "none" says that nothing is claimed; its verdict is `NO_CLAIM`. A claim
    that no verification is about is `NOT_VERIFIED`.
    """
    report = record.verification or {}
    verdicts = {(c.get("who"), c.get("about")): c for c in report.get("claims", ())}
    found = []
    for claim in record.summary.get("claims", ()):
        own = verdicts.get((claim["who"], claim["about"]), {})
        same = own.get("notion", claim["notion"]) == claim["notion"]
        verdict = own.get("verdict", NOT_VERIFIED) if same else NOT_VERIFIED
        if claim["notion"] == "none" and verdict != "VIOLATED":
            verdict = NO_CLAIM
        found.append(
            {
                **claim,
                "verdict": verdict,
                "evidence": str(own.get("evidence", "")).split("; ") if own and same else [],
                "failure_probability": own.get("failure_probability"),
            }
        )
    return found


def other_parameters(record: Record) -> dict[str, list[Any]]:
    """Parameters whose values in the verification and in the run differ, as [verified, run]."""
    if record.verification is None:
        return {}
    verified = record.verification.get("parameters", {})
    own = record.config.get("derived", {})
    return {
        name: [verified[name], own[name]]
        for name in verified
        if name in own and name not in _NOT_COMPARED and verified[name] != own[name]
    }


def claims_side_by_side(records: Sequence[Record]) -> list[dict[str, Any]]:
    """For each (against, about) one row with every run's notion and verdict, None without one."""
    each = [{(c["who"], c["about"]): c for c in claims(record)} for record in records]
    keys = dict.fromkeys(key for own in each for key in own)
    return [
        {"who": who, "about": about, "cells": [own.get((who, about)) for own in each]}
        for who, about in keys
    ]


def spent(record: Record) -> dict[str, Any] | None:
    """Epsilon of the run: what its protocol derived, and what the last round says was spent."""
    derived = record.config.get("derived", {})
    names = [name for name in derived if name.startswith("epsilon") or name in ("delta", "sigma")]
    last = {k: v for k, v in record.rows[-1].items() if k.startswith("epsilon")}
    budget = [event for event in record.events if event["event"] == "budget"]
    if not last and not any(name.startswith("epsilon") for name in names):
        return None
    return {
        "derived": {name: derived[name] for name in names if derived[name] is not None},
        "last": last,
        "stopped": budget[-1] if budget else None,
    }


def card(protocol: str) -> Mapping[str, Any] | None:
    """Card of a protocol that is installed here."""
    found = find_protocols().get(protocol)
    return None if found is None else describe_protocol(found)
