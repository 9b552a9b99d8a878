def utf8_bytes(text):
    return text.encode("utf-8")
