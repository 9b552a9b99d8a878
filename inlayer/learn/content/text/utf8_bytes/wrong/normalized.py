import unicodedata


def utf8_bytes(text):
    return list(unicodedata.normalize("NFC", text).encode())
