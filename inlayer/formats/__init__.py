"""File formats as bytes on disk: safetensors, GGUF, torch .bin. Numpy only.

Headers are untrusted: every size is compared with the file before anything is allocated or looped over.
"""
