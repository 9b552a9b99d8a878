"""The learner's process: it runs his code and says what it gave. What is right is known in ours alone."""
