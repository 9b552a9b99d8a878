def table_bytes(vocab_size, n_embd, dtype, tied):
    return vocab_size * n_embd * dtype.itemsize * (1 if tied else 2) / 1e9
