"""The engine: it runs parties, delivers messages with their delays, and records them."""
