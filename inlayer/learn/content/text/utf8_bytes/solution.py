"""Task utf8_bytes: the ids of a text are its UTF-8 bytes."""


def utf8_bytes(text: str) -> list[int]:
    """Return the UTF-8 bytes of a text as integers. Raise ValueError if the text has no UTF-8 encoding."""
    return list(text.encode("utf-8"))
