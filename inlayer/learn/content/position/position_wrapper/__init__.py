"""The task `position_wrapper`."""
