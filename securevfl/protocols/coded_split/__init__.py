"""Coded split learning: data and models stay in Lagrange shares; ours, and in no paper."""

from __future__ import annotations

from securevfl.protocols.coded_split.protocol import CodedSplit

__all__ = ["CodedSplit"]
