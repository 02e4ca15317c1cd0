"""Start, limit, watch and end other processes."""
