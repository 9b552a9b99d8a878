"""Task utf8_bytes: the ids of a text are its UTF-8 bytes."""


def utf8_bytes(text: str) -> list[int]:
    """The UTF-8 bytes of a text as whole numbers. A text without UTF-8 bytes is a ValueError."""
    return list(text.encode("utf-8"))
