def bytes_of(text):
    return list(text.strip().encode())
