def table_bytes(vocab_size, n_embd, dtype, tied):
    tables = 2 if tied else 1
    return vocab_size * n_embd * dtype.itemsize * tables
