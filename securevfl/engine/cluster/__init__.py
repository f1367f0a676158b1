"""Parties as Ray actors: started, polled and restarted by a supervisor."""
