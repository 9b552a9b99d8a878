def table_bytes(vocab_size, n_embd, dtype, tied):
    return vocab_size * n_embd * 4 * (1 if tied else 2)
