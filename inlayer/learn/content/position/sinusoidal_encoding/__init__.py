"""The task `sinusoidal_encoding`."""
