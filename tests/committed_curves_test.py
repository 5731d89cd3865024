"""The committed loss curves: FP32 and BF16 from the same seed track each other for an epoch."""

import json
import statistics
import unittest
from pathlib import Path

from memfloor_process import ROOT

CURVES = ROOT / "results" / "curves"
WINDOW = 50  # updates


def losses(name):
    return [json.loads(line)["loss"] for line in (CURVES / name).read_text().splitlines()]


class CommittedCurves(unittest.TestCase):

    def test_fp32_and_bf16_track_each_other(self):
        fp32 = losses("wrn28_2_cifar10_first_epoch_fp32.jsonl")
        bf16 = losses("wrn28_2_cifar10_short_bf16_mixed.jsonl")
        self.assertEqual(len(fp32), 500)
        for first in range(0, len(fp32), WINDOW):
            a, b = (statistics.mean(curve[first:first + WINDOW]) for curve in (fp32, bf16))
            self.assertAlmostEqual(a, b, delta=0.02, msg=f"updates {first} to {first + WINDOW}")
        # It fell a long way, so the windows could differ.
        self.assertLess(statistics.mean(fp32[-WINDOW:]), statistics.mean(fp32[:WINDOW]) - 1)


if __name__ == "__main__":
    unittest.main()
