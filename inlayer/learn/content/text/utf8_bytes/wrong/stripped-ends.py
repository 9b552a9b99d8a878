def utf8_bytes(text):
    return list(text.strip().encode())
