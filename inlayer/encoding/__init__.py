"""Encoding: texts -> one vector per text, or one per token.

text -> ids -> rows -> [pooling] -> vectors
- `row_pooling.py` sums rows, `encode.py` goes from texts to arrays, `weighting.py` fits weights and removes common
  components; `source_files.py`, `lines.py`, `reader.py`, `columns.py`, `outputs.py` and `resumable_job.py` read and
  write the files of `inlayer embed` and make its run resumable; `ray_job.py` does so on many machines
- numpy only; torch or SciPy do the sums where they are installed
Tested in tests/encoding/.
"""
