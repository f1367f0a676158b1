"""DVFL: guests, hosts and the label owner of section 5; options, messages and claims."""

from __future__ import annotations

from securevfl.protocols.dvfl.protocol import Dvfl

__all__ = ["Dvfl"]
