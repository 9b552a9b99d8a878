import torch


def gather(table, ids):
    return table[ids - 1]
