from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)
    merged = []
    for place, value in enumerate(ids):
        merged.append(new_id if tuple(ids[place : place + 2]) == pair else value)
    return merged
