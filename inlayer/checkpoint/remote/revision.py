"""Which repository on the hub is meant, and which one commit of it.

[checkpoint] -> Embeddings, Head, tokenizer
- `org/name` or `org/name@revision`; a revision is a branch, a tag or a commit
- a branch moves: it is looked up once, and everything else is asked of the commit it meant then
- without a network it means the commit it meant the last time, here or to any other user of huggingface_hub's cache
Checked in tests/checkpoint/remote/test_hub.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from inlayer.checkpoint.remote.ranges import RangeCache, cache_folder
from inlayer.checkpoint.remote.transfer import (
    CONNECT_TIMEOUT,
    RETRIED,
    Fault,
    UnreachableError,
    explain_offline,
    hub_errors,
    one_line,
    persist,
    refusal,
    retry_after,
)
from inlayer.errors import CheckpointError, InputError
from inlayer.paths import printable

__all__ = ["pin", "split_id"]

REVISION = re.compile(r"(?!.*\.\.)\w[\w./+-]{0,199}")
COMMIT = re.compile(r"[0-9a-f]{40}")
WHOLE = (0, 0)  # the cache keeps ranges of files; a commit's name is one of no file


def split_id(repo_id: str, revision: str | None = None) -> tuple[str, str | None]:
    """Repository and revision, both checked, of `org/name` or `org/name@revision`."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    name, at, behind = repo_id.partition("@")
    if at and revision is not None:
        raise InputError(f"{printable(repo_id)!r} names a revision, and revision={printable(revision)!r} another")
    wanted = behind if at else revision
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"{printable(name)[:120]!r} is no hub id: {printable(str(error))}") from None
    if wanted is not None and not REVISION.fullmatch(wanted):
        raise InputError(f"{printable(wanted)[:120]!r} is no revision: it is a branch, a tag or a commit")
    return name, wanted


def pin(repo_id: str, revision: str | None) -> str:
    """The commit that a revision means now, or meant when the hub was last reached."""
    from huggingface_hub import constants

    wanted = revision or constants.DEFAULT_REVISION
    if COMMIT.fullmatch(wanted):
        return wanted
    what = repo_id if revision is None else f"{repo_id}@{revision}"
    cache = RangeCache(cache_folder(repo_id, "refs"))
    kept = _kept_commit(cache, repo_id, wanted)
    try:
        # Where there is an answer already, one question is enough.
        commit = persist(
            lambda: _ask(repo_id, wanted, what), f"{what} could not be looked up", attempts=1 if kept else None
        )
    except UnreachableError:
        if kept is None:
            raise
        return kept
    if commit != kept:
        cache.put(wanted, {WHOLE: commit.encode()})
    return commit


def _ask(repo_id: str, revision: str, what: str) -> str:
    """The commit, as the hub says it with every answer about a file, even that there is no such file."""
    from huggingface_hub import errors, get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(repo_id, "config.json", revision=revision)
    headers = build_hf_headers(library_name="inlayer")
    try:
        response = get_session().request("HEAD", url, headers=headers, timeout=CONNECT_TIMEOUT, follow_redirects=True)
    except errors.OfflineModeIsEnabled:
        raise explain_offline(what) from None
    except hub_errors() as error:
        raise Fault(one_line(error)) from error
    status = response.status_code
    if status in RETRIED:
        raise Fault(f"the server answered with status {status}", retry_after(response.headers))
    answers = [*response.history, response]  # a repository that was renamed is redirected
    commits = (answer.headers.get("X-Repo-Commit", "") for answer in answers)
    commit = next((value for value in commits if COMMIT.fullmatch(value)), None)
    if commit is not None:
        return commit
    if status >= 400:
        raise refusal(status, response.headers, what)
    raise CheckpointError(f"{what}: the server does not name a commit; does HF_ENDPOINT point to a hub?")


def _kept_commit(cache: RangeCache, repo_id: str, revision: str) -> str | None:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    kept = cache.get(revision, [WHOLE])
    if kept:
        return kept[WHOLE].decode()
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo_id, repo_type="model")
    try:
        commit = (folder / "refs" / revision).read_text(errors="replace").strip()
    except OSError:
        return None
    return commit if COMMIT.fullmatch(commit) else None
