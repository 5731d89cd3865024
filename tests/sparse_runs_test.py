"""Sparse trainings of the real binary: what they write, and how they go on after a kill."""

import json
import signal
import struct
import unittest

from memfloor_process import SMALL, MemfloorTest, read_json

SPARSE = [*SMALL, "--sparsity", "0.8"]
COMPRESSIBLE = {"blocks.0.conv1": (16, 16), "blocks.0.conv2": (16, 16), "blocks.1.conv1": (32, 16),
                "blocks.1.conv2": (32, 32), "blocks.2.conv1": (64, 32), "blocks.2.conv2": (64, 64)}
POSITIONS = sum(9 * out * inputs for out, inputs in COMPRESSIBLE.values())
NON_ZEROS = round(0.2 * POSITIONS)


def read_tensors(path):
    """(name to list of numbers, metadata) of a safetensors file of F32 and I32 tensors."""
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__", {})
    def values(entry):
        begin, end = entry["data_offsets"]
        kind = {"F32": "f", "I32": "i"}[entry["dtype"]]
        return list(struct.unpack(f"<{(end - begin) // 4}{kind}", data[start + begin:start + end]))
    return {name: values(entry) for name, entry in header.items()}, metadata


class SparseRuns(MemfloorTest):

    def test_what_a_training_writes(self):
        self.run_well("train", *SPARSE, "--max-steps", "4", "--out", "r.json",
                      "--save-weights", "w.safetensors", "--save-sparse", "s.safetensors")
        dense, _ = read_tensors(self.folder / "w.safetensors")
        sparse, metadata = read_tensors(self.folder / "s.safetensors")
        layers = {layer["name"]: layer for layer in read_json(self.folder / "r.json")["sparse_layers"]}
        self.assertEqual(set(layers), {f"{name}.weight" for name in COMPRESSIBLE})
        self.assertEqual(sum(layer["positions"] for layer in layers.values()), POSITIONS)
        self.assertEqual(sum(layer["non_zeros"] for layer in layers.values()), NON_ZEROS)

        for name, (out, inputs) in COMPRESSIBLE.items():
            name += ".weight"
            columns = 9 * inputs
            self.assertEqual(json.loads(metadata[f"{name}.shape"]), [out, columns])
            data, indices, starts = (sparse[f"{name}.{part}"]
                                     for part in ("data", "indices", "indptr"))
            self.assertEqual([starts[0], starts[-1]], [0, len(data)])
            self.assertEqual([len(indices), len(starts)], [len(data), out + 1])
            self.assertEqual(len(data), layers[name]["non_zeros"])
            # As scipy.sparse.csr_matrix.toarray() does.
            rows = [0.0] * (out * columns)
            for o in range(out):
                row = indices[starts[o]:starts[o + 1]]
                self.assertEqual(row, sorted(set(row)))
                for k in range(starts[o], starts[o + 1]):
                    rows[o * columns + indices[k]] = data[k]
            self.assertEqual(rows, dense[name])  # OIHW, row by row
            try:
                import numpy
                import scipy.sparse
            except ModuleNotFoundError:
                continue
            matrix = scipy.sparse.csr_matrix((data, indices, starts), (out, columns))
            self.assertTrue(matrix.has_canonical_format)
            self.assertTrue((matrix.toarray().ravel() == numpy.array(dense[name])).all())

        notes = read_json(self.folder / "r.json")["notes"]
        self.assertTrue(any("scaled sparse schedule" in note for note in notes), notes)
        self.assertFalse(any("differ" in note for note in notes), notes)

        # The exported weights are the model, in a dense store too.
        accuracy = read_json(self.folder / "r.json")["quality"]["test_accuracy"]
        for sparsity in ("0.8", "0"):
            self.run_well("evaluate", *SMALL, "--sparsity", sparsity, "--weights", "w.safetensors",
                          "--out", "e.json")
            self.assertEqual(read_json(self.folder / "e.json")["quality"]["test_accuracy"], accuracy)
        self.assert_refused("evaluate", *SMALL, "--sparsity", "0.9", "--weights", "w.safetensors",
                            words=["non-zero weights", "--sparsity 0.9 holds"])

    def test_killed_and_continued(self):
        # The pattern moves after each of the first eleven updates.
        train = ["train", *SPARSE, "--max-steps", "12"]
        outputs = lambda name: ["--save-weights", f"{name}.w", "--save-sparse", f"{name}.s"]
        self.run_well(*train, *outputs("straight"))
        arguments = [*train, *outputs("killed"), "--out", "k.json", "--snapshot-every", "1",
                     "--resume"]
        snapshot = self.folder / "k.json.snapshot"
        for _ in range(2):
            before = snapshot.stat().st_mtime_ns if snapshot.exists() else 0
            process = self.start(*arguments)
            self.assertTrue(self.wait_until(
                lambda: snapshot.exists() and snapshot.stat().st_mtime_ns > before, process))
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.assertIn("continuing after update", self.run_memfloor(*arguments)[2])
        for kind in "ws":
            self.assertEqual((self.folder / f"killed.{kind}").read_bytes(),
                             (self.folder / f"straight.{kind}").read_bytes())

    def test_predicted_and_measured_are_equal(self):
        out = self.run_well("measure", *SPARSE, "--sparse-index", "csr16")
        self.assertIn("predicted and measured bytes are equal in every category", out)


if __name__ == "__main__":
    unittest.main()
