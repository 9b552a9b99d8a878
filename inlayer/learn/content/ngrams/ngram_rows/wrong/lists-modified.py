def ngram_rows(ids, multipliers, moduli, stop):
    rows = []
    ids.insert(0, stop)  # so that every token has one before it
    for place, newest in enumerate(ids):
        mixed, ended, first = newest * multipliers[0], False, 0
        found = []
        for back, modulus in enumerate(moduli, start=1):
            ended = ended or place < back or ids[place - back] == stop
            mixed ^= (stop if ended else ids[place - back]) * multipliers[back]
            found.append(mixed % modulus + first)
            first += modulus
        rows.append(found)
    return rows[1:]
