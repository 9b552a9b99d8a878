"""Task "Position ids for padded batches"."""
