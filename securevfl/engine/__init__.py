"""The engine: runs parties, delivers their messages with delays, and records these."""
