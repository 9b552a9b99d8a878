import unicodedata


def bytes_of(text):
    return list(unicodedata.normalize("NFC", text).encode())
