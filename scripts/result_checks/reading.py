"""Finding and reading result files."""

import json
from pathlib import Path

from environment import ROOT

COMMAND_FOLDERS = ["predict", "measure", "step", "train", "timeline"]  # of a machine's folder
MACHINE = "machine.json"
NOT_RESULTS = {"schema.json", "speed", "curves", "local"}  # beside the machines' folders


def read(path):
    """The parsed file. Raises ValueError with one sentence."""
    def refuse(constant):
        raise ValueError(f"holds {constant}, which is not JSON; write null for what is unknown.")
    def pairs(items):
        keys = [key for key, _ in items]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"has the key '{twice[0]}' twice; keep one.")
        return dict(items)
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse,
                          object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno}: {error.msg}); "
                         "run the case again.") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text; run the case again.") from None
    except RecursionError:
        raise ValueError("is nested too deeply for a result; run the case again.") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}; check the path.") from None


def found_in(folder):
    """The JSON files below a folder that should be results or machine.json, sorted by name. Of the
    folder results/, not those that have another form, or are not committed."""
    folder = Path(folder)
    skipped = NOT_RESULTS if folder.resolve() == ROOT / "results" else set()
    return sorted(path for path in folder.rglob("*.json")
                  if path.relative_to(folder).parts[0] not in skipped)


def committed():
    """The result files of results/, sorted by name."""
    return [path for path in found_in(ROOT / "results") if path.name != MACHINE]
