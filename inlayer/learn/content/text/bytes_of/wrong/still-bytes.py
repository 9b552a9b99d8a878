def bytes_of(text):
    return text.encode("utf-8")
