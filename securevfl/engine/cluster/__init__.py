"""Parties as Ray actors: started, polled and restarted by a supervisor."""

ANSWER = 120.0  # seconds in which a party must answer, if a run does not say otherwise
