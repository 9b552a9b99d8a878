"""The task `rotary_turn`."""
