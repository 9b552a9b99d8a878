"""Programs that make what the repository carries; nobody imports them."""
