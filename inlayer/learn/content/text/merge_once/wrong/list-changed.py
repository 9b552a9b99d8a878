from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return ids
    pair = max(counts, key=counts.get)
    place = 0
    while place < len(ids) - 1:
        if (ids[place], ids[place + 1]) == pair:
            ids[place : place + 2] = [new_id]
        place += 1
    return ids
