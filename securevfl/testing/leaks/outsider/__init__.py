"""Leaks and variants by somebody who had not read the verifiers: rare, beside messages, below."""
