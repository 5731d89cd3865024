"""The Python environment of the scripts: .venv, which scripts/setup makes."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def use_venv():
    """Runs the calling script again with .venv's Python, where there is one and it is another."""
    python = VENV / "bin" / "python3"
    inside = Path(sys.prefix).resolve() == VENV.resolve()
    if python.exists() and not inside and "MEMFLOOR_IN_VENV" not in os.environ:
        os.environ["MEMFLOOR_IN_VENV"] = "1"  # once is enough
        os.execv(python, [str(python), "-B", *sys.argv])
    os.environ.pop("MEMFLOOR_IN_VENV", None)


def show(text):
    """Prints it. A reader that has seen enough, as `| head`, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit


def fail(sentence):
    sys.exit(f"{Path(sys.argv[0]).name}: {sentence}")


def fail_missing(error):
    fail(f"the Python package '{error.name}' is missing; run scripts/setup.")
