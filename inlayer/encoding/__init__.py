"""Encoding: texts -> one vector per text, or one per token.

text -> ids -> rows -> [pooling] -> vectors
- `row_pooling.py` sums rows, `encode.py` turns texts into arrays, and `weighting.py` fits weights and removes common
  components; `source_files.py`, `lines.py`, `reader.py`, `columns.py`, `outputs.py`, and `resumable_job.py` read and
  write the files of `inlayer embed`, resumably; `ray_job.py` runs it on many machines
- only numpy is needed; torch or SciPy computes the sums if installed
Tested in tests/encoding/.
"""
