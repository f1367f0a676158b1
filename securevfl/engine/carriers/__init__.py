"""Carriers of frames between parties that are apart, and the sessions that make them reliable."""
