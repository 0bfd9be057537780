"""Fetching one published file: it gets its name once its checksum is right, or an error says what to do instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Bar = Callable[[str], Any]  # a file's name -> pooch's progress bar: an object with total, update, reset and close


def retrieve(
    name: str,
    url: str,
    target: Path,
    checksum: str | None,
    bar: Bar | None = None,
    check: Callable[[Path], object] | None = None,
    otherwise: str = "",
) -> None:
    """Download `url` to `target`, unless it is there and right. `name` is what the user asked for.

    `checksum` is as pooch has it, "md5:…"; where None is published in full, `check` raises ValueError for a wrong file.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=bar(target.name) if bar else False, timeout=60)
    arriving = target if check is None else target.with_name(f"{target.name}.unchecked")
    try:
        if check is not None:
            arriving.unlink(missing_ok=True)
        pooch.retrieve(url, checksum, arriving.name, target.parent, downloader=downloader)
        if check is not None:
            check(arriving)
        arriving.chmod(0o644)  # a temporary file is for its owner alone, a data folder is often shared
        arriving.replace(target)
    except (OSError, ValueError) as error:  # what requests raises is an OSError, a wrong checksum a ValueError
        if check is not None:
            arriving.unlink(missing_ok=True)
        offline = isinstance(error, requests.ConnectionError)
        reason = f"no connection to {url.split('/')[2]}" if offline else str(error)
        raise ValueError(
            f"{name}: {target.name} could not be fetched ({reason}). Get it from {url} in some other way and put it at "
            f"{target}{otherwise}"
        ) from error
