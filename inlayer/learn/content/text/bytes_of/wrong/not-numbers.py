def bytes_of(text):
    return [f"{byte:02x}" for byte in text.encode()]
