"""The task `rotate_pairs`."""
