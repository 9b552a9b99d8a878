"""The task "The rows of an n-gram memory"."""
