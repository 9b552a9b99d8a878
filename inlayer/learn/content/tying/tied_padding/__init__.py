"""Task: a padding row that stays zero when tied."""
