"""What a run will need and take, computed before it starts: K, field, bytes, memory, times."""
