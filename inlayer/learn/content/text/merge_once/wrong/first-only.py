from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)
    index = list(zip(ids, ids[1:])).index(pair)
    return ids[:index] + [new_id] + ids[index + 2 :]
