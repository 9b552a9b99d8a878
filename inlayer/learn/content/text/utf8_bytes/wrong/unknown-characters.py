def utf8_bytes(text):
    return list(text.encode("ascii", errors="replace"))
