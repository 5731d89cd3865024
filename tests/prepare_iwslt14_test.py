"""scripts/prepare_iwslt14: known answers, the official files byte for byte, bad input."""
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
from array import array
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SCRIPT = SCRIPTS / "prepare_iwslt14"
REAL = Path(os.environ.get("MEMFLOOR_TEST_DATA_DIR", "/nonexistent"))


def load_script():
    """The script as a module; None where its libraries are missing."""
    sys.path.insert(0, str(SCRIPTS))
    os.environ["MEMFLOOR_IN_VENV"] = "1"  # this Python, whatever it is
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("prepare_iwslt14", str(SCRIPT))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("prepare_iwslt14", loader))
    sys.modules["prepare_iwslt14"] = module  # dataclasses look their module up
    try:
        loader.exec_module(module)
    except SystemExit:
        return None
    return module


script = load_script()
needs_libraries = unittest.skipIf(script is None, "sacremoses or subword-nmt is missing; "
                                                  "scripts/setup installs them")
needs_real_data = unittest.skipUnless(
    (REAL / "iwslt14" / "orig_xml").is_dir() and (REAL / "iwslt_recovered").is_dir(),
    "no real text: MEMFLOOR_TEST_DATA_DIR has no iwslt14/ and iwslt_recovered/")


def read_binary(data):
    """What the loader reads: vocabulary size and sentences of numbers."""
    magic, version, vocabulary, sentences, tokens = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version) == (b"MFTOKENS", 1)
    offsets = array("Q", data[32:32 + 8 * (sentences + 1)])
    numbers = array("H", data[32 + 8 * (sentences + 1):])
    assert (offsets[0], offsets[-1], len(numbers)) == (0, tokens, tokens)
    return vocabulary, [list(numbers[a:b]) for a, b in zip(offsets, offsets[1:])]


class PrepareTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def prepare(self, *arguments):
        """Runs the script in this process; returns its output."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            script.prepare(script.parse([str(a) for a in ("--out", self.out, *arguments)]))
        return output.getvalue()

    def record(self):
        return json.loads((self.out / "corpus.json").read_text())

    def made(self, name):
        return (self.out / name).read_bytes()


@needs_libraries
class Vocabularies(unittest.TestCase):

    def test_fairseqs_order_numbers_and_filling(self):
        vocabulary = script.corpus_files.Vocabulary("en", ["b a b ä", "Z a <unk> c b", "c </s>"])
        self.assertEqual(vocabulary.dictionary().decode(),
                         "b 3\na 2\nc 2\nZ 1\nä 1\n" +
                         "".join(f"madeupword000{i} 0\n" for i in range(7)))
        self.assertEqual(vocabulary.size, 16)
        data, tokens, unknown = vocabulary.binary(["b ä", "new", "a <pad> c b"])
        self.assertEqual((tokens, unknown), (7, 2))
        self.assertEqual(read_binary(data), (16, [[4, 8], [3], [5, 3, 6, 4]]))

    def test_no_filling_where_none_is_needed(self):
        self.assertEqual(script.corpus_files.Vocabulary("en", ["a b c d"]).dictionary(),
                         b"a 1\nb 1\nc 1\nd 1\n")

    def test_a_vocabulary_must_fit_16_bits(self):
        largest = " ".join(map(str, range(65524)))
        self.assertEqual(script.corpus_files.Vocabulary("de", [largest]).size, 65528)
        with self.assertRaisesRegex(script.InputError, "the de vocabulary has 65,536 tokens"):
            script.corpus_files.Vocabulary("de", [largest + " x"])


WORDS = ["haus", "maus", "laus", "baum", "raum", "traum", "hund", "mund", "rund", "bund"]


def wit3_files(lines=50, languages=("de", "en")):
    """The members of a small de-en.tgz."""
    files = {}
    for language in languages:
        text = ["<url>http://x/y.html</url>", "<keywords>a, b</keywords>",
                "<talkid>1</talkid>", "<title>Der Titel</title>",
                "<description>TED Talk: Ein Haus, ein Baum.</description>"]
        text += [f" Das {WORDS[i % 10].title()}, {WORDS[i * 7 % 10]} No{i} isn't. "
                 for i in range(lines)]
        files[f"train.tags.de-en.{language}"] = text
        for number, test in enumerate(["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011",
                                       "TED.tst2012"]):
            files[f"IWSLT14.{test}.de-en.{language}.xml"] = [
                "<mteval>", f"<title>not in the text {number}</title>",
                f'<seg id="1"> Es ist Haus {number}’s &amp; Raum. </seg>', "</mteval>"]
    return files


@needs_libraries
class Wit3(PrepareTest):

    def archive(self, files):
        path = self.folder / "de-en.tgz"
        with tarfile.open(path, "w:gz") as tar:
            for name, lines in files.items():
                data = "".join(line + "\n" for line in lines).encode()
                member = tarfile.TarInfo(f"de-en/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return path

    def test_the_whole_way_from_an_archive(self):
        files = wit3_files()
        files["train.tags.de-en.de"][20] = ""  # dropped, like the next two
        files["train.tags.de-en.en"][21] = "too short"
        files["train.tags.de-en.de"][22] = files["train.tags.de-en.en"][22] = "x " * 176
        output = self.prepare("--from-wit3", self.archive(files), "--bpe-merges", 40)
        record = self.record()
        self.assertEqual({split: counts["pairs"] for split, counts in record["splits"].items()},
                         {"train": 47, "valid": 2, "test": 5})  # 52 - 3 dropped; each 23rd
        self.assertEqual(record["splits"]["train"]["dropped"],
                         {"empty": 1, "ratio": 1, "too_long": 1})
        self.assertIn("dropped: empty 1, ratio 1, too_long 1", output)
        self.assertEqual(self.made("valid.tok.de").decode().splitlines(),  # 23rd and 46th left
                         ["das baum , maus no23 isn &apos; t .",
                          "das hund , laus no46 isn &apos; t ."])
        self.assertEqual(self.made("valid.detok.en").decode().splitlines()[0],
                         "das baum, maus no23 isn't.")
        self.assertEqual(self.made("test.tok.en").decode().splitlines(),
                         [f"es ist haus {i} &apos;s &amp; amp ; raum ." for i in range(5)])
        self.assertEqual(self.made("test.tok.de").decode().splitlines()[3],
                         "es ist haus 3 &apos; s &amp; amp ; raum .")
        self.assertEqual(self.made("test.detok.en").decode().splitlines()[3],
                         "es ist haus 3's & amp; raum.")
        text = self.made("train.de").decode().replace("@@ ", "").splitlines()
        self.assertEqual(text[:2], ["der titel", "ted talk : ein haus , ein baum ."])
        self.assertEqual(record["equals_standard"],
                         {"train": False, "valid": False, "test": False, "bpe.codes": False})
        self.assertIn("NOT the standard one", " ".join(record["notes"]))

    def test_every_file_is_what_the_record_says_and_numbers_equal_text(self):
        self.prepare("--from-wit3", self.archive(wit3_files()), "--bpe-merges", 40)
        record = self.record()
        self.assertEqual(set(record["files"]) | {"corpus.json"},
                         {path.name for path in self.out.iterdir()})
        for name, digest in record["files"].items():
            self.assertEqual(hashlib.sha256(self.made(name)).hexdigest(), digest)
        self.assertEqual(record["bpe_codes_sha256"], record["files"]["bpe.codes"])
        for role, language in (("source", "de"), ("target", "en")):
            dictionary = self.made(f"dict.{language}.txt").decode().splitlines()
            symbols = ["<s>", "<pad>", "</s>", "<unk>"]
            symbols += [line.split(" ")[0] for line in dictionary]
            self.assertEqual(len(symbols), record["vocabulary"][language])
            self.assertEqual(len(symbols) % 8, 0)
            for split, counts in record["splits"].items():
                vocabulary, sentences = read_binary(self.made(f"{split}.{language}.bin"))
                self.assertEqual(vocabulary, len(symbols))
                self.assertEqual(len(sentences), counts["pairs"])
                self.assertEqual(sum(map(len, sentences)), counts[f"{role}_tokens"])
                unknown = 0
                for numbers, line in zip(sentences,
                                         self.made(f"{split}.{language}").decode().splitlines()):
                    tokens = line.split(" ")
                    unknown += numbers.count(3)
                    self.assertEqual([token if token in symbols else "<unk>" for token in tokens],
                                     [symbols[number] for number in numbers])
                self.assertEqual(unknown, counts[f"{role}_unknown"])
            self.assertEqual(record["splits"]["train"][f"{role}_unknown"], 0)

    def test_an_unpacked_folder_gives_the_same(self):
        files = wit3_files()
        self.prepare("--from-wit3", self.archive(files), "--bpe-merges", 40)
        first = self.record()
        for name, lines in files.items():
            self.write(f"unpacked/de-en/{name}", "".join(line + "\n" for line in lines))
        self.prepare("--from-wit3", self.folder / "unpacked", "--bpe-merges", 40, "--force")
        self.assertEqual(self.record(), first)

    def test_bad_archives(self):
        files = wit3_files()
        path = self.archive(files)
        whole = path.read_bytes()
        for content in (whole[:len(whole) // 2], b"", b"no archive at all"):
            path.write_bytes(content)
            with self.assertRaisesRegex(script.InputError, r"^.* is not a whole .tgz archive .*$"):
                self.prepare("--from-wit3", path)
        with self.assertRaisesRegex(script.InputError, "absent.tgz cannot be read: No such file"):
            self.prepare("--from-wit3", self.folder / "absent.tgz")
        del files["IWSLT14.TEDX.dev2012.de-en.en.xml"]
        with self.assertRaisesRegex(script.InputError,
                                    "lacks IWSLT14.TEDX.dev2012.de-en.en.xml; scripts/fetch_data"):
            self.prepare("--from-wit3", self.archive(files))
        files = wit3_files()
        del files["train.tags.de-en.de"][-1]
        with self.assertRaisesRegex(script.InputError,
                                    "train.tags.de-en.de has 51 lines and .*en has 52"):
            self.prepare("--from-wit3", self.archive(files))
        self.assertFalse(self.out.exists())


@needs_libraries
class Tokenized(PrepareTest):

    def setUp(self):
        super().setUp()
        for split in ("train", "valid", "test"):
            for language in ("de", "en"):
                self.write(f"in/{split}.{language}",
                           "".join(f"{a} und {b} .\n" for a in WORDS for b in WORDS[:3]))

    def run_it(self, *arguments):
        return self.prepare("--from-tokenized", self.folder / "in", "--bpe-merges", 30, *arguments)

    def refuses(self, sentence, *arguments):
        with self.assertRaisesRegex(script.InputError, sentence):
            self.run_it(*arguments)
        self.assertFalse((self.out / "corpus.json").exists())

    def test_takes_the_text_as_it_is(self):
        self.run_it()
        record = self.record()
        self.assertEqual((record["name"], record["source"], record["target"]),
                         ("in.de-en", "de", "en"))
        self.assertEqual(record["splits"]["train"]["pairs"], 30)
        for split in ("valid", "test"):
            self.assertEqual(self.made(f"{split}.tok.de"),
                             (self.folder / "in" / f"{split}.de").read_bytes())

    def test_run_again_it_does_nothing(self):
        self.run_it()
        before = {path.name: path.stat().st_mtime_ns for path in self.out.iterdir()}
        self.assertIn("is complete already", self.run_it())
        self.assertEqual({path.name: path.stat().st_mtime_ns for path in self.out.iterdir()},
                         before)
        self.run_it("--force")
        self.assertNotEqual((self.out / "corpus.json").stat().st_mtime_ns, before["corpus.json"])

    def test_repairs_what_is_missing_or_changed(self):
        self.run_it()
        record = self.record()
        (self.out / "dict.de.txt").write_text("und 1\n")
        self.assertIn("missing or changed", self.run_it())
        (self.out / "train.en.bin").unlink()
        self.assertIn("missing or changed", self.run_it())
        self.assertEqual(self.record(), record)
        self.assertIn("is complete already", self.run_it())

    def test_other_text_or_settings_are_not_taken_for_the_same(self):
        self.run_it()
        for arguments in (["--name", "other.de-en"],
                          ["--train", self.folder / "in" / "more"]):
            for language in ("de", "en"):
                self.write(f"in/more.{language}", "haus und maus .\n" * 5)
            with self.assertRaisesRegex(script.InputError, "other text or with other settings"):
                self.run_it(*arguments)
            self.run_it("--force", *arguments)
            self.run_it("--force")

    def test_a_full_disk_leaves_nothing_that_looks_whole(self):
        self.run_it()
        (self.out / "test.en.bin.tmp").symlink_to("/dev/full")
        with self.assertRaisesRegex(script.InputError,
                                    "test.en.bin cannot be written: No space left on device"):
            self.run_it("--force")
        self.assertFalse((self.out / "corpus.json").exists())
        self.assertEqual([path for path in self.out.iterdir() if path.suffix == ".tmp"], [])
        self.run_it()
        self.assertTrue((self.out / "corpus.json").exists())

    def test_a_folder_that_cannot_be_made(self):
        self.write("out", "a file")
        with self.assertRaisesRegex(script.InputError, "out cannot be written: .*another --out"):
            self.run_it()

    def test_its_own_input_is_not_overwritten(self):
        self.out = self.folder / "in"
        self.refuses("holds the text to prepare")

    def test_different_line_counts(self):
        self.write("in/valid.de", "eins .\nzwei .\n")
        self.refuses(r"in/valid.de has 2 lines and .*/in/valid.en has 30; line by line")

    def test_empty_lines_are_dropped_and_counted(self):
        self.write("in/train.de", "haus und maus .\n\n" * 10 + " \t\nmaus .\nhaus .\n")
        self.write("in/train.en", "haus und maus .\n" * 22 + "\n")
        output = self.run_it()
        self.assertEqual(self.record()["splits"]["train"]["dropped"], {"empty": 12, "ratio": 1})
        self.assertEqual(self.record()["splits"]["train"]["pairs"], 10)
        self.assertIn("dropped: empty 12, ratio 1", output)

    def test_only_training_text_is_limited_in_length(self):
        long = "haus " * 200 + "\n"
        for split in ("train", "test"):
            for language in ("de", "en"):
                self.write(f"in/{split}.{language}", "haus und maus .\n" * 5 + long)
        self.run_it()
        splits = self.record()["splits"]
        self.assertEqual((splits["train"]["pairs"], splits["train"]["dropped"]),
                         (5, {"too_long": 1}))
        self.assertEqual((splits["test"]["pairs"], splits["test"]["dropped"]), (6, {}))

    def test_nothing_is_left(self):
        self.write("in/valid.de", "\n" * 30)
        self.refuses(r"no pair of valid is left: all 30 were dropped \(empty: 30\)")

    def test_invalid_utf8(self):
        self.write("in/test.en", "gut\n".encode() * 2 + b"nicht \xfcber\n")
        self.refuses(r"in/test.en, line 3, is not UTF-8")

    def test_crlf_is_taken_off_and_noted(self):
        plain = (self.folder / "in" / "train.de").read_bytes()
        self.run_it()
        expected = self.made("train.de")
        self.write("in/train.de", plain.replace(b"\n", b"\r\n", 7))
        self.run_it("--force")
        self.assertEqual(self.made("train.de"), expected)
        self.assertIn("train.de: 7 of 30 lines ended in CR LF; the CR was taken off.",
                      self.record()["notes"])

    def test_empty_and_missing_files(self):
        self.write("in/train.en", "")
        self.refuses("in/train.en is empty")
        (self.folder / "in" / "train.en").unlink()
        self.refuses("in/train.en cannot be read: No such file")

    def test_a_text_too_small_for_bpe(self):
        for language in ("de", "en"):
            self.write(f"in/train.{language}", "a b c\n")
        self.refuses("too small to learn BPE")

    def prepare_with_codes(self, text, *arguments):
        return self.prepare("--from-tokenized", self.folder / "in", "--bpe-codes",
                            self.write("codes", text), *arguments)

    def test_given_codes_are_applied(self):
        self.run_it()
        learnt = self.record()
        self.prepare_with_codes(self.made("bpe.codes"), "--force")
        self.assertEqual(self.record()["files"], learnt["files"])

    def test_codes_of_another_format(self):
        for text, sentence in (("e n</w>\nt h\n", "its first line is 'e n</w>'"),
                               ("#version: 0.1\ne n</w>\n", "'#version: 0.1' and must be"),
                               ("#version: 0.2\ne n</w> 1234\n", "line 2, is 'e n</w> 1234'"),
                               ("#version: 0.2\ne n\n\nt h\n", "line 3, is ''"), ("", "is empty"),
                               (b"#version: 0.2\n\xff e\n", "line 2, is not UTF-8")):
            with self.assertRaisesRegex(script.InputError, sentence):
                self.prepare_with_codes(text)
        self.assertFalse(self.out.exists())

    def test_codes_of_another_language(self):
        with self.assertRaisesRegex(script.InputError, "make 0% of the joins .*of other text"):
            self.prepare_with_codes("#version: 0.2\nи н</w>\nп р\n")
        self.assertEqual(list(self.out.iterdir()), [])

    def test_codes_of_doubtful_fit_are_noted(self):
        self.prepare_with_codes("#version: 0.2\nu n\nun d</w>\na u\nau s</w>\na um</w>\nu m</w>\n"
                                "a um</w>\nt r\nau m</w>\n")
        self.assertIn("are they of the same languages?", " ".join(self.record()["notes"]))


@needs_libraries
class Multi30k(PrepareTest):

    def test_raw_text_without_a_limit_on_the_ratio(self):
        for name in ("train", "val", "test_2016_flickr"):
            self.write(f"m/{name}.de", f"Zwei Männer, {name}.\nHund!\n" * 3)
            self.write(f"m/{name}.en", f"Two men's {name}.\nA dog in the U.S.\n" * 3)
        self.prepare("--from-multi30k", self.folder / "m", "--bpe-merges", 20)
        record = self.record()
        self.assertEqual(record["name"], "multi30k.de-en")
        self.assertNotIn("equals_standard", record)
        self.assertEqual(record["splits"]["train"]["pairs"], 6)
        self.assertEqual(self.made("valid.tok.de").decode().splitlines()[:2],
                         ["zwei männer , val .", "hund !"])
        self.assertEqual(self.made("test.tok.en").decode().splitlines()[:2],
                         ["two men &apos;s test _ 2016 _ flickr .", "a dog in the u.s ."])
        self.assertEqual(self.made("test.detok.en").decode().splitlines()[1], "a dog in the u.s.")


@needs_libraries
@needs_real_data
class Official(PrepareTest):
    """What fairseq's script and the Perl tools made, byte for byte."""

    def equal(self, made, official):
        if self.made(made) != (REAL / "iwslt14" / official).read_bytes():
            self.fail(f"{made} is not the official {official}")

    def test_from_the_original_xml(self):
        """Tokens and subwords of all five test sets. The training text is made up."""
        folder = self.folder / "de-en"
        folder.mkdir()
        for path in (REAL / "iwslt14" / "orig_xml").iterdir():
            (folder / path.name).symlink_to(path)
        for language in ("de", "en"):
            with open(REAL / "iwslt_recovered" / f"train.{language}", encoding="utf-8") as file:
                lines = [next(file) for _ in range(200)]
            self.write(f"de-en/train.tags.de-en.{language}", "".join(lines))
        self.prepare("--from-wit3", folder, "--bpe-codes", REAL / "iwslt14" / "bpe.10k.codes")
        for language in ("de", "en"):
            self.equal(f"test.tok.{language}", f"test.{language}")
            self.equal(f"test.{language}", f"test.bpe10k.{language}")
        self.equal("test.detok.en", "test.detok.en")
        self.assertEqual(self.record()["splits"]["test"]["pairs"], 6750)
        self.assertEqual(self.record()["equals_standard"],
                         {"train": False, "valid": False, "test": True, "bpe.codes": True})

    def test_from_tokenised_text(self):
        for language in ("de", "en"):
            with open(REAL / "iwslt_recovered" / f"train.{language}", encoding="utf-8") as file:
                self.write(f"train.{language}", "".join(next(file) for _ in range(200)))
        self.prepare("--from-tokenized", self.folder, "--valid", REAL / "iwslt14" / "valid",
                     "--test", REAL / "iwslt14" / "test",
                     "--bpe-codes", REAL / "iwslt14" / "bpe.10k.codes")
        for split in ("valid", "test"):
            for language in ("de", "en"):
                self.equal(f"{split}.tok.{language}", f"{split}.{language}")
                self.equal(f"{split}.{language}", f"{split}.bpe10k.{language}")
            self.equal(f"{split}.detok.en", f"{split}.detok.en")
        self.assertEqual(self.record()["equals_standard"],
                         {"train": False, "valid": True, "test": True, "bpe.codes": True})


class CommandLine(PrepareTest):
    """As a user starts it."""

    def start(self, *arguments, python=(sys.executable,), environment=None):
        return subprocess.run([*python, str(SCRIPT), *map(str, arguments)], capture_output=True,
                              text=True, env={**os.environ, **(environment or {})})

    def assert_one_sentence(self, run, *parts):
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertTrue(run.stderr.startswith("prepare_iwslt14: "), run.stderr)
        for part in parts:
            self.assertIn(part, run.stderr)

    @needs_libraries
    def test_a_fault_is_one_sentence(self):
        self.assertTrue(os.access(SCRIPT, os.X_OK))
        self.assert_one_sentence(self.start("--from-tokenized", self.folder, "--out", self.out),
                                 "train.de cannot be read: No such file or directory.")

    @needs_libraries
    def test_flags_that_do_not_go_together(self):
        for arguments, fault in ((["--train", "x"], "--train goes with --from-tokenized only"),
                                 (["--bpe-merges", "0"], "at least 1"),
                                 (["--bpe-codes", "x", "--bpe-merges", "5"], "not allowed with"),
                                 (["--from-wit3", "x", "--from-multi30k", "y"], "not allowed")):
            run = self.start(*arguments)
            self.assertEqual(run.returncode, 2)
            self.assertIn(fault, run.stderr)

    def test_a_missing_library(self):
        run = self.start("--from-multi30k", self.folder, python=(sys.executable, "-S"),
                         environment={"MEMFLOOR_IN_VENV": "1", "PYTHONPATH": ""})
        self.assert_one_sentence(run, "the Python package 'regex' is missing; run scripts/setup.")


if __name__ == "__main__":
    unittest.main()
