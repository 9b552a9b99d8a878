def utf8_bytes(text):
    return [f"{byte:02x}" for byte in text.encode()]
