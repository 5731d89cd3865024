"""Files that are there whole or not at all."""

import os
from contextlib import contextmanager


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
