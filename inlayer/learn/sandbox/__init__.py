"""The sandbox: a separate process, without the expected values, that runs a learner's code and returns results."""
