"""Scripts that generate files of the repository; nothing imports them."""
