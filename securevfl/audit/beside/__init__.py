"""Ways around messages: shared objects, acts beyond the process, the sampler itself."""
