"""Files that are there whole or not at all, and which of them are make_paper's own."""

import json
import os
from contextlib import contextmanager

import result_files

MANIFEST = "make_paper.json"  # names the files that are make_paper's own


@contextmanager
def replacing(path):
    """Hands out a path to write to, which replaces `path` at the end; after an error nothing is left."""
    partial = path.with_name(path.name + ".tmp")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write(folder, name, text):
    """Writes the text as UTF-8; returns the name."""
    with replacing(folder / name) as partial:
        partial.write_text(text, encoding="utf-8")
    return name


def made_before(folder):
    """The files that an earlier run made here. Raises ValueError with one sentence."""
    path = folder / MANIFEST
    if not path.exists():
        return []
    try:
        manifest = result_files.read(path)
    except ValueError as error:
        raise ValueError(f"it {error}") from None
    names = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(names, list) or not all(
            isinstance(name, str) and name == os.path.basename(name) for name in names):
        raise ValueError("it has no list of names at the key 'files'.")
    return names


def write_manifest(folder, names):
    text = json.dumps({"schema_version": 1, "files": sorted(names)}, indent=2)
    write(folder, MANIFEST, text + "\n")
