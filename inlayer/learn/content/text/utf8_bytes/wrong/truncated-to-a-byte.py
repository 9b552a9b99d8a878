def utf8_bytes(text):
    return [ord(character) & 0xFF for character in text]
