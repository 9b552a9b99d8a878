from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)
    merged = []
    for index, value in enumerate(ids):
        merged.append(new_id if tuple(ids[index : index + 2]) == pair else value)
    return merged
