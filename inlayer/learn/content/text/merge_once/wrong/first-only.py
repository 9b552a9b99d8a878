from collections import Counter


def merge_once(ids, new_id):
    counts = Counter(zip(ids, ids[1:]))
    if not counts:
        return list(ids)
    pair = max(counts, key=counts.get)
    place = list(zip(ids, ids[1:])).index(pair)
    return ids[:place] + [new_id] + ids[place + 2 :]
