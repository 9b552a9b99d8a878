"""The task `sinusoids`."""
