"""Downloads jars whose names are known from Maven Central, several at once.

Ivy, which resolves versions, takes ten times as long: it reads the description of each artifact
and of its parents, one after the other.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.client import HTTPException
from pathlib import Path
from typing import Final

from spark_groups.broker.ivy import FetchProgress

CENTRAL: Final = "https://repo1.maven.org/maven2/"
_PARALLEL_DOWNLOADS: Final = 8
_CHUNK_BYTES: Final = 1 << 16
_SILENCE_S: Final = 20.0
"""How long a server may send nothing."""


def download(
    paths: Iterable[str],
    into: Path,
    progress: FetchProgress,
    deadline_s: float,
    repository: str = CENTRAL,
) -> None:
    """Download jars into one folder.

    Args:
        paths: Where each is below `repository`.
        deadline_s: When to give up, on the monotonic clock.
        repository: A URL that ends in a slash.

    Raises:
        OSError: A jar cannot be downloaded, or not in time.
    """
    wanted = list(paths)

    def fetch(path: str) -> None:
        try:
            _fetch(repository + path, into / Path(path).name, deadline_s)
        except HTTPException as error:
            raise ConnectionError(f"{repository}{path}: {error!r}") from error

    with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
        fetching = [pool.submit(fetch, path) for path in wanted]
        try:
            for done in as_completed(fetching):
                done.result()
                progress.count(len(wanted))
        finally:
            pool.shutdown(cancel_futures=True)


def _fetch(url: str, jar: Path, deadline_s: float) -> None:
    with jar.open("wb") as file, urllib.request.urlopen(url, timeout=_SILENCE_S) as response:
        while chunk := response.read1(_CHUNK_BYTES):
            file.write(chunk)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{url} was not downloaded in the time allowed")
        if response.length:
            raise ConnectionError(f"{url} ended {response.length} bytes too early")
