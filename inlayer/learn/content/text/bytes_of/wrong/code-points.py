def bytes_of(text):
    return [ord(character) for character in text]
