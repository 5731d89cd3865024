"""Starts the memfloor binary as a user does, for the tests of its command line."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(os.environ.get("MEMFLOOR_SOURCE_DIR", Path(__file__).resolve().parent.parent))
BINARY = str(Path(os.environ.get("MEMFLOOR_BINARY", ROOT / "build" / "memfloor")).resolve())
# One thread: these runs are too small for two, which would wait for each other on a busy machine.
# Few test images: with sanitizers an evaluation on all of them takes a quarter of a minute.
SMALL = ["--model", "wrn10_1", "--batch-size", "10", "--test-images", "205", "--threads", "1"]
LONGEST_SECONDS = 500


def limit_file_size(size):
    """For preexec_fn: a file longer than `size` bytes cannot be written, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def strict_json(text):
    """Parses JSON; refuses NaN, Infinity and keys that come twice, which other parsers refuse."""
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    def pairs(items):
        if len(dict(items)) != len(items):
            raise ValueError(f"a key comes twice among {[key for key, _ in items]}")
        return dict(items)
    return json.loads(text, parse_constant=refuse, object_pairs_hook=pairs)


def read_json(path):
    return strict_json(Path(path).read_text(encoding="utf-8"))


def reproducible(memory):
    """The byte fields that the spec alone decides, without what the system happens to show."""
    return {key: value for key, value in memory.items()
            if key not in ("library_bytes", "rss_anon_delta_bytes")}


class MemfloorTest(unittest.TestCase):
    """Every test has an empty folder of its own, in which memfloor runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *arguments, **options):
        """Starts memfloor; it is killed at the test's end if it still runs."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, "text": True, "cwd": self.folder, **options}
        process = subprocess.Popen([BINARY, *map(str, arguments)], **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()

    def run_memfloor(self, *arguments, **options):
        """Runs it to its end; returns (exit status, standard output, standard error)."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=LONGEST_SECONDS)
        return process.returncode, out, err

    def run_well(self, *arguments, **options):
        """Runs it, expects success and returns its standard output."""
        status, out, err = self.run_memfloor(*arguments, **options)
        self.assertEqual(status, 0, err)
        return out

    def assert_one_sentence(self, status, err, *words):
        """The refusal is one line for a person, and an exit status that says so."""
        self.assertIn(status, (1, 2), err)
        self.assertRegex(err, r"\Amemfloor: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, err)

    def assert_refused(self, *arguments, words, **options):
        """Refused with the words in one sentence, nothing printed and no file left or changed."""
        with self.subTest(arguments=" ".join(map(str, arguments))):
            before = self.files()
            status, out, err = self.run_memfloor(*arguments, **options)
            self.assert_one_sentence(status, err, *([words] if isinstance(words, str) else words))
            self.assertEqual(out, "")
            self.assertEqual(self.files(), before)

    def files(self):
        """Name to size and time of everything in the folder."""
        return {str(path.relative_to(self.folder)): (path.stat().st_size, path.stat().st_mtime_ns)
                for path in self.folder.rglob("*")}

    def names(self):
        return set(self.files())

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def wait_until(self, condition, process):
        """Waits until the condition holds or the process has ended; returns the condition."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while not condition() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return condition()

    def interrupt_after(self, updates, *arguments, **options):
        """A training that logs its losses to losses.jsonl, interrupted as by Ctrl-C after so many
        updates; returns its first losses and its standard error."""
        log = self.folder / "losses.jsonl"
        log.unlink(missing_ok=True)
        process = self.start("train", *arguments, "--log-loss", log, **options)
        lines = lambda: log.read_text().count("\n") if log.exists() else 0
        self.assertTrue(self.wait_until(lambda: lines() >= updates, process),
                        "the training ended early")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONGEST_SECONDS)
        self.assertEqual(process.returncode, 130, err)
        return [strict_json(line)["loss"] for line in log.read_text().splitlines()[:updates]], err
