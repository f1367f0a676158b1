"""Encrypted links and the parties' long-lived identities."""
