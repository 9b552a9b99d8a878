def table_bytes(vocab_size, n_embd, dtype, tied):
    return vocab_size * n_embd * dtype.itemsize * 8 * (1 if tied else 2)
