"""Task ngram_rows: the rows that the n-grams of a text read."""


def ngram_rows(ids: list[int], multipliers: list[int], moduli: list[int], stop: int) -> list[list[int]]:
    """Return the row of every hash head, for every token."""
    rows = []
    for place, newest in enumerate(ids):
        mixed, ended, first = newest * multipliers[0], False, 0
        found = []
        for back, modulus in enumerate(moduli, start=1):
            ended = ended or place < back or ids[place - back] == stop
            mixed ^= (stop if ended else ids[place - back]) * multipliers[back]
            found.append(mixed % modulus + first)
            first += modulus
        rows.append(found)
    return rows
