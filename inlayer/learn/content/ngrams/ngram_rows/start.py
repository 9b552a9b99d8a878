"""Task ngram_rows: the rows that the n-grams of a text read."""


def ngram_rows(ids: list[int], multipliers: list[int], moduli: list[int], stop: int) -> list[list[int]]:
    """Return the row of every hash head, for every token."""
    return []  # write your code here
