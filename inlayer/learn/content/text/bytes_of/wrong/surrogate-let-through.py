def bytes_of(text):
    return list(text.encode("utf-8", errors="surrogatepass"))
