def utf8_bytes(text):
    return list(text.encode("utf-8", errors="surrogatepass"))
