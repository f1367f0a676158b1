"""Coded split learning, our method: data and models stay in Lagrange shares."""

from __future__ import annotations

from securevfl.protocols.coded_split.protocol import CodedSplit

__all__ = ["CodedSplit"]
