"""scripts/fetch_data against a server on this machine: good days and bad ones."""
import contextlib
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "fetch_data"


def load_script():
    loader = importlib.machinery.SourceFileLoader("fetch_data", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_data", loader))
    sys.modules["fetch_data"] = module  # dataclasses look their module up
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


fetch_data = load_script()

FILES = {"a.bin": os.urandom(300_000), "b.bin": b"b" * 1000}


def make_archive(members):
    """A .tar.gz of (name, bytes) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


ARCHIVE = make_archive([("set/readme.html", b"not wanted"), ("../escaped.bin", b"evil"),
                        ("set/../../escaped.bin", b"evil")] +
                       [(f"set/{name}", data) for name, data in FILES.items()])


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.body at /set.tar.gz; keeps the Range of every request."""

    def do_GET(self):
        server = self.server
        server.ranges.append(self.headers.get("Range"))
        if self.path != "/set.tar.gz":
            return self.send_error(404)
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked and server.knows_range:
            start = int(asked[1])
            if start >= len(server.body):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range",
                             f"bytes {start}-{len(server.body) - 1}/{len(server.body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(server.body) - start))
        self.end_headers()
        self.wfile.write(server.body[start:server.break_at])

    def log_message(self, *arguments):
        pass


class FetchData(unittest.TestCase):

    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.body, self.server.ranges = ARCHIVE, []
        self.server.knows_range, self.server.break_at = True, None
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.to = Path(folder.name) / "data"
        self.part = self.to / "set.tar.gz.part"

    def fetch(self, archive=ARCHIVE, path="/set.tar.gz", checksums=True):
        """Runs the script; returns its exit code, output and error output."""
        dataset = fetch_data.Dataset(
            url=self.address + path, folder="set",
            md5=hashlib.md5(archive).hexdigest() if checksums else None,
            sha256={n: hashlib.sha256(d).hexdigest() if checksums else None
                    for n, d in FILES.items()})
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = fetch_data.main(["tiny", "--to", str(self.to)], {"tiny": dataset})
        return code, out.getvalue(), err.getvalue()

    def assert_fetched(self):
        """The expected files, and nothing else anywhere."""
        found = {str(p.relative_to(self.to.parent)): p.read_bytes()
                 for p in self.to.parent.rglob("*") if p.is_file()}
        self.assertEqual(found, {f"data/set/{name}": data for name, data in FILES.items()})

    def assert_one_sentence(self, err, *parts):
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("fetch_data: "), err)
        for part in parts:
            self.assertIn(part, err)

    def test_downloads_and_unpacks_the_expected_files_only(self):
        code, out, err = self.fetch()
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("\r", out)  # no terminal, no moving line
        self.assert_fetched()
        self.assertEqual(self.server.ranges, [None])

    def test_leaves_alone_what_is_right_and_repairs_what_is_not(self):
        self.fetch()
        code, out, _ = self.fetch()
        self.assertEqual(code, 0)
        self.assertIn("complete already", out)
        self.assertEqual(len(self.server.ranges), 1)  # no second request
        (self.to / "set" / "b.bin").write_bytes(b"truncated")
        self.assertEqual(self.fetch()[0], 0)
        self.assert_fetched()

    def test_resumes_a_partial_download(self):
        self.to.mkdir()
        self.part.write_bytes(ARCHIVE[:100_000])
        code, out, _ = self.fetch()
        self.assertEqual(code, 0)
        self.assertEqual(self.server.ranges, ["bytes=100000-"])
        self.assertIn("resuming", out)
        self.assert_fetched()

    def test_a_broken_connection_can_be_resumed(self):
        self.server.break_at = 50_000
        code, _, err = self.fetch()
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, f"after 50000 of {len(ARCHIVE)} bytes", "again")
        self.assertEqual(self.part.read_bytes(), ARCHIVE[:50_000])
        self.server.break_at = None
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.server.ranges, [None, "bytes=50000-"])
        self.assert_fetched()

    def test_a_server_without_ranges_starts_again(self):
        self.server.knows_range = False
        self.to.mkdir()
        self.part.write_bytes(b"x" * 100_000)
        self.assertEqual(self.fetch()[0], 0)
        self.assert_fetched()

    def test_a_partial_file_longer_than_the_archive_starts_again(self):
        self.to.mkdir()
        self.part.write_bytes(ARCHIVE + b"x")
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.server.ranges, [f"bytes={len(ARCHIVE) + 1}-", None])
        self.assert_fetched()

    def test_a_whole_archive_is_not_downloaded_again(self):
        self.to.mkdir()
        self.part.write_bytes(ARCHIVE)
        self.assertEqual(self.fetch()[0], 0)
        self.assertEqual(self.server.ranges, [])
        self.assert_fetched()

    def test_a_corrupt_archive_is_refused_and_deleted(self):
        self.server.body = ARCHIVE[:1000] + bytes([ARCHIVE[1000] ^ 1]) + ARCHIVE[1001:]
        code, _, err = self.fetch()
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, "is corrupt", "MD5", "deleted")
        self.assertFalse(self.part.exists())
        self.assertFalse((self.to / "set").exists())

    def test_wrong_contents_in_the_right_archive_are_refused(self):
        archive = self.server.body = make_archive([("set/a.bin", b"wrong")])
        code, _, err = self.fetch(archive)
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, "set/a.bin in the archive is not the official file")
        self.assertEqual(list((self.to / "set").iterdir()), [])

    def test_an_archive_that_lacks_a_file_is_refused(self):
        archive = self.server.body = make_archive([("set/a.bin", FILES["a.bin"])])
        code, _, err = self.fetch(archive)
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, "lacks set/b.bin")

    def test_a_link_in_place_of_a_file_is_not_followed(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            link = tarfile.TarInfo("set/a.bin")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
        archive = self.server.body = buffer.getvalue()
        code, _, err = self.fetch(archive)
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, "lacks set/a.bin")
        self.assertEqual(list((self.to / "set").iterdir()), [])

    def test_without_checksums_the_archive_must_unpack_to_its_end(self):
        """IWSLT'14's archive has no published checksum."""
        code, out, err = self.fetch(checksums=False)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("2 of them without a known SHA-256", out)
        self.assert_fetched()
        self.assertIn("complete already", self.fetch(checksums=False)[1])
        self.assertEqual(len(self.server.ranges), 1)  # no second request
        (self.to / "set" / "b.bin").unlink()
        self.assertEqual(self.fetch(checksums=False)[0], 0)
        self.assert_fetched()

    def test_without_checksums_a_whole_archive_is_not_downloaded_again(self):
        self.to.mkdir()
        self.part.write_bytes(ARCHIVE)
        self.assertEqual(self.fetch(checksums=False)[0], 0)
        self.assertEqual(self.server.ranges, [])
        self.assert_fetched()

    def test_without_checksums_a_corrupt_archive_is_refused_and_deleted(self):
        for body in (ARCHIVE[:-100], ARCHIVE[:-8] + b"\0" * 8, b"<html>no such page</html>",
                     ARCHIVE[:1000] + bytes([ARCHIVE[1000] ^ 1]) + ARCHIVE[1001:]):
            self.server.body = body
            code, _, err = self.fetch(checksums=False)
            self.assertEqual(code, 1)
            self.assert_one_sentence(err, "is corrupt: it cannot be unpacked to its end", "deleted")
            self.assertFalse(self.part.exists())
            self.assertFalse((self.to / "set").exists())

    def test_iwslt14_is_what_prepare_iwslt14_reads(self):
        dataset = fetch_data.DATASETS["iwslt14"]
        self.assertEqual((dataset.folder, Path(dataset.url).name), ("de-en", "de-en.tgz"))
        self.assertEqual(len(dataset.sha256), 13)  # the licence, train tags, five tests, twice
        real = Path(os.environ.get("MEMFLOOR_TEST_DATA_DIR", "")) / "iwslt14" / "orig_xml"
        if real.is_dir():
            self.assertEqual({path.name for path in real.iterdir()} - set(dataset.sha256), set())

    def test_a_missing_url_is_reported(self):
        code, _, err = self.fetch(path="/absent.tar.gz")
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, "404", "/absent.tar.gz", "--url")

    def test_a_server_that_is_not_there_is_reported(self):
        self.address = "http://127.0.0.1:9"  # discard: nobody listens
        code, _, err = self.fetch()
        self.assertEqual(code, 1)
        self.assert_one_sentence(err, "cannot download", "again")

    def test_the_command_line(self):
        """As a user starts it: the official data set from another address."""
        run = subprocess.run([sys.executable, str(SCRIPT), "cifar10", "--to", str(self.to), "--url",
                              self.address + "/set.tar.gz"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assert_one_sentence(run.stderr, "is corrupt",
                                 "c32a1d4ab5d03f1284b67883e8d87530")
        self.assertTrue(os.access(SCRIPT, os.X_OK))


if __name__ == "__main__":
    unittest.main()
