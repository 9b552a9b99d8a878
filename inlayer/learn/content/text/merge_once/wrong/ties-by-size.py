from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=lambda pair: (counts[pair], pair))
    merged, place = [], 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == pair:
            merged.append(new_id)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged
