"""Training: learn an embedding table inside a small decoder, and save the result as a model.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> loss, and backward
- train.py is the entry point, `inlayer.train`; config.py holds its settings
- corpus.py -> encoded_corpus.py turn text files into ids on disk
- trainer.py takes steps with optimizer.py, lr_schedule.py, and metrics.py, in one process or several (parallel.py)
- resumable_run.py keeps a run on disk with run_paths.py and state.py; export.py writes the model
- analysis.py, plot.py, and run_report.py present the results
Nothing is imported here: `inlayer train --help` must not load torch.
"""
