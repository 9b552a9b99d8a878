def bytes_of(text):
    return list(text.encode("ascii", errors="replace"))
