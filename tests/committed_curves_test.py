"""The committed loss curves: how BF16 and the techniques follow FP32 from the same seed."""

import json
import statistics
import unittest
from pathlib import Path

from memfloor_process import ROOT

CURVES = ROOT / "results" / "curves"
WINDOW = 50  # updates


def losses(name):
    return [json.loads(line)["loss"] for line in (CURVES / name).read_text().splitlines()]


def windows(curve):
    return [statistics.mean(curve[first:first + WINDOW]) for first in range(0, len(curve), WINDOW)]


class CommittedCurves(unittest.TestCase):

    def test_the_first_epoch_of_wide_resnet(self):
        fp32 = windows(losses("wrn28_2_cifar10_first_epoch_fp32.jsonl"))
        self.assertEqual(len(fp32), 500 // WINDOW)
        self.assertLess(fp32[-1], fp32[0] - 1)  # it fell a long way, so the others could differ
        # At most so far from FP32's: results/README.md says what each is.
        for name, band in [("short_bf16_mixed", 0.02), ("first_epoch_bf16", 0.03),
                           ("first_epoch_sparsity", 0.04), ("first_epoch_bf16_sparsity", 0.04),
                           ("first_epoch_parts", 0.3), ("first_epoch_bf16_parts", 0.3),
                           ("first_epoch_sparsity_parts", 0.3), ("first_epoch_paper_best", 0.3)]:
            curve = losses(f"wrn28_2_cifar10_{name}.jsonl")
            self.assertGreaterEqual(len(curve), 500)
            for number, (a, b) in enumerate(zip(windows(curve[:500]), fp32, strict=True)):
                self.assertAlmostEqual(a, b, delta=band, msg=f"{name}, window {number}")

    def test_three_epochs_of_translation(self):
        curve = losses("dynamic_conv_multi30k_3epochs_bf16_mixed.jsonl")
        self.assertEqual(len(curve), 378)
        self.assertLess(statistics.mean(curve[-WINDOW:]), statistics.mean(curve[:WINDOW]) - 2.5)


if __name__ == "__main__":
    unittest.main()
