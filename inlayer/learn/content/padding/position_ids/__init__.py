"""The task `position_ids`."""
