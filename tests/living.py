"""The processes below one that live."""

import contextlib

import psutil


def living(pid: int, module: str) -> list[psutil.Process]:
    """Those that were started as `python -m MODULE`, at any depth."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # or a zombie, which is one of those
            if module in child.cmdline():
                found.append(child)
    return found
