def utf8_bytes(text):
    return [ord(character) for character in text]
