"""Task "Gather the rows yourself"."""
