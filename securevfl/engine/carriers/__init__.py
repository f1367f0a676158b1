"""Carriers of frames between parties on separate machines, and sessions that make them reliable."""
