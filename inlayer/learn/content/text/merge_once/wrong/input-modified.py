from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return ids
    pair = max(counts, key=counts.get)
    index = 0
    while index < len(ids) - 1:
        if (ids[index], ids[index + 1]) == pair:
            ids[index : index + 2] = [new_id]
        index += 1
    return ids
