"""The task `mean_pool`."""
