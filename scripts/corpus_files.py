"""The files of a prepared corpus: vocabularies, binary tokens, and the record that closes it.

docs/data.md describes the formats.
"""

import array
import collections
import hashlib
import json
import os
import struct
import sys
import tempfile

FORMAT = 1
RECORD = "corpus.json"
MAGIC = b"MFTOKENS"
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # tokens 0 to 3, as in fairseq
UNKNOWN = 3
MAX_VOCABULARY = 65535  # tokens are stored in 16 bits


class InputError(Exception):
    """One sentence for the user: what is wrong, where, and what to do."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_blob_id(data):
    """The name under which git stores these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def as_bytes(lines):
    return "".join(line + "\n" for line in lines).encode()


# --- vocabularies ---------------------------------------------------------------------------------
def count_tokens(lines):
    """fairseq-preprocess's order: most frequent first, and by code point where counts are equal."""
    counts = collections.Counter(token for line in lines for token in line.split(" "))
    for special in SPECIALS:
        counts.pop(special, None)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Vocabulary:
    """Token numbers: the specials, the training text's tokens, filling up to a multiple of 8."""

    def __init__(self, language, lines):
        counts = count_tokens(lines)
        filling = -(len(SPECIALS) + len(counts)) % 8
        self.counts = counts + [(f"madeupword{number:04d}", 0) for number in range(filling)]
        self.size = len(SPECIALS) + len(self.counts)
        if self.size > MAX_VOCABULARY:
            raise InputError(f"the {language} vocabulary has {self.size:,} tokens, and at most "
                             f"{MAX_VOCABULARY:,} can be stored; learn fewer merges with "
                             "--bpe-merges")
        self.numbers = {token: len(SPECIALS) + position
                        for position, (token, _) in enumerate(self.counts)}

    def dictionary(self):
        """fairseq's dict.LANGUAGE.txt: the specials are not in it."""
        return as_bytes(f"{token} {count}" for token, count in self.counts)

    def binary(self, lines):
        """The text as LANGUAGE.bin; its tokens, without end-of-sentence marks; the unknown ones."""
        offsets, tokens = array.array("Q", [0]), array.array("H")
        for line in lines:
            tokens.extend(self.numbers.get(token, UNKNOWN) for token in line.split(" "))
            offsets.append(len(tokens))
        unknown = tokens.count(UNKNOWN)
        if sys.byteorder == "big":
            offsets.byteswap()
            tokens.byteswap()
        head = struct.pack("<8sIIQQ", MAGIC, FORMAT, self.size, len(lines), len(tokens))
        return head + offsets.tobytes() + tokens.tobytes(), len(tokens), unknown


# --- the folder -----------------------------------------------------------------------------------
def write_atomically(path, data):
    """Writes all or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException as error:
        try:
            temporary.unlink(missing_ok=True)
        except OSError:
            pass  # the first fault is the one to report
        if isinstance(error, OSError):
            raise InputError(f"{path} cannot be written: {error.strerror}; what was made there is "
                             "not complete, so make room or give another --out and run "
                             "again") from error
        raise


def read_record(folder):
    """corpus.json of a prepared corpus; None where there is none of this format."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("format") == FORMAT else None


def is_complete(folder, record):
    """Whether every file of the record is there, byte for byte."""
    try:
        return all(sha256((folder / name).read_bytes()) == digest
                   for name, digest in record["files"].items())
    except OSError:
        return False


def make_folder(folder):
    """Makes a folder where there is none; it must be writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; give another "
                         "--out") from error


def write_corpus(folder, files, record):
    """Writes `files` (name: bytes), then the record: without it a folder is no corpus."""
    (folder / RECORD).unlink(missing_ok=True)
    for name, data in files.items():
        write_atomically(folder / name, data)
    record = {"format": FORMAT, **record,
              "files": {name: sha256(data) for name, data in files.items()}}
    write_atomically(folder / RECORD, (json.dumps(record, indent=2, ensure_ascii=False) +
                                       "\n").encode())
