"""Task: what the head and the lookup teach a tied table."""
