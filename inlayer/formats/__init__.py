"""File formats as bytes on disk: safetensors, GGUF, torch .bin, ggml types. Numpy only.

[file] -> bytes of rows -> tables, checkpoint
- headers are untrusted: every size is compared with the file before anything is allocated or repeated by it
- elsewhere: which tensor of a model is the table (checkpoint/), what its rows are used for (tables/)
"""
