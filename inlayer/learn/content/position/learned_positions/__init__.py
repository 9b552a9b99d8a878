"""The task `learned_positions`."""
