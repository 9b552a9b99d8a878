def bytes_of(text):
    return [ord(character) & 0xFF for character in text]
