"""Claims of a run's protocol with verdicts, and the privacy spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.protocols.base.registry import find_protocols
from securevfl.report.records import Record
from securevfl.runs.catalogue import describe_protocol

NOT_VERIFIED = "not verified"
NO_CLAIM = "not protected"
_MEANING = {
    "PROVED": "the view of each coalition in a traced run follows from what the claim gives it, "
    "for all inputs; another process checked the certificate, and the evidence names the run",
    "DP": "the same as PROVED, and differential privacy by the accountant",
    "NOT PROTECTED": "what is sent shows it",
    "NOT PROVED": "no proof was found; the evidence names the messages",
    "VIOLATED": "a combination of messages tells more, or other evidence is against the claim",
    "NOT TESTED": "no proof or verifier is about the claim",
    "COULD NOT BE CHECKED": "the verification ended in an error",
    NO_CLAIM: "the protocol says this of itself",
    NOT_VERIFIED: "this report has no verification of the claim with these parameters",
}
# A verification has small batches and few rounds of its own; the accounting of epsilon counts them.
_NOT_COMPARED = ("batch_rows", "seed", "epsilon")


def claims(record: Record) -> list[dict[str, Any]]:
    """The claims of a run, each with its verdict and evidence from ``verify.json``.

    Keys: ``who``, ``about``, ``notion``, ``source``, ``verdict``, ``given``, ``evidence``,
    ``failure_probability``. A claim of strength "none" has the verdict `NO_CLAIM`. Other claims
    have the verdict on the same claim with the same parameters, or `NOT_VERIFIED`.
    """
    verdicts = {} if other_parameters(record) else {_key(found): found for found in _all(record)}
    made = []
    for claim in record.summary.get("claims", ()):
        own = verdicts.get(_key(claim), {})
        verdict = own.get("verdict", NOT_VERIFIED) if claim["notion"] != "none" else NO_CLAIM
        if claim.get("tells") and record.summary.get("released"):  # which the page says once
            reason = claim["source"].removesuffix(f". {claim['tells']}")
            claim = {**claim, "source": f"{reason}. What these sums tell stands above"}
        given = own.get("given") or claim.get("given")  # a proof may grant more than the claim says
        made.append(_finding({**own, **claim, "given": given, "verdict": verdict}))
    return made


def meanings(records: Sequence[Record]) -> dict[str, str]:
    """Meaning of each verdict that occurs for claims of these runs."""
    there = {one["verdict"] for r in records for one in (*claims(r), *other_verdicts(r))}
    return {verdict: text for verdict, text in _MEANING.items() if verdict in there}


def other_verdicts(record: Record) -> list[dict[str, Any]]:
    """Verdicts, other than NOT TESTED, without a matching claim in this run; keys as in `claims`.

    These are all verdicts if the verification had other parameters than the run.
    """
    own = set() if other_parameters(record) else {_key(c) for c in record.summary.get("claims", ())}
    return [
        _finding(found)
        for found in _all(record)
        if _key(found) not in own and found["verdict"] != "NOT TESTED"
    ]


def _all(record: Record) -> list[dict[str, Any]]:
    return list((record.verification or {}).get("claims", ()))


def _key(claim: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(claim.get(name) for name in ("who", "about", "notion"))


def _finding(claim: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: claim.get(name) for name in ("who", "about", "notion", "source", "verdict")},
        "given": list(claim.get("given") or ()),
        "evidence": _evidence(claim),
        "failure_probability": claim.get("failure_probability"),
    }


def _evidence(claim: Mapping[str, Any]) -> list[str]:
    """Pieces of evidence; an older verify.json has only one text."""
    pieces = claim.get("evidence_list")
    if isinstance(pieces, list):
        found = [str(one.get("text", "")) for one in pieces if isinstance(one, Mapping)]
        return [text for text in found if text]
    text = str(claim.get("evidence") or "")
    return [text] if text else []


def other_parameters(record: Record) -> dict[str, list[Any]]:
    """Parameters that differ between verification and run, as [verified, run]."""
    verified = (record.verification or {}).get("parameters", {})
    own = record.config.get("derived", {})
    return {
        name: [verified[name], own[name]]
        for name in verified
        if name in own and not name.startswith(_NOT_COMPARED) and verified[name] != own[name]
    }


def claims_side_by_side(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Rows of ``who``, ``about`` and ``cells``: the list of such claims of each run in turn."""
    each: list[dict[tuple[str, str], list[dict[str, Any]]]] = []
    for record in records:
        each.append({})
        for claim in claims(record):
            each[-1].setdefault((claim["who"], claim["about"]), []).append(claim)
    keys = dict.fromkeys(key for own in each for key in own)
    return [
        {"who": who, "about": about, "cells": [own.get((who, about), []) for own in each]}
        for who, about in keys
    ]


def spent(record: Record) -> dict[str, Any] | None:
    """Privacy spent by the run; None if it counts no epsilon.

    The result has epsilon, delta and sigma as ``derived`` from the options, epsilon by the ``last``
    round, and the event that ``stopped`` the run, None if its budget did not.
    """
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
    """Card of a protocol; None if it is not installed here."""
    found = find_protocols().get(protocol)
    return None if found is None else describe_protocol(found)
