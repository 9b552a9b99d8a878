"""The task `pad_batch`."""
