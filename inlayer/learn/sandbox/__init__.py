"""The sandbox: a separate process that runs a learner's code and returns results; it knows no expected values."""
