"""memfloor bleu: what it prints and what it refuses."""

import unittest

from memfloor_process import MemfloorTest, strict_json


class Bleu(MemfloorTest):

    def setUp(self):
        super().setUp()
        self.write("hyp", "the cat sat on the mat .\nIt is Here .\n")
        self.write("ref", "the cat sat on a mat .\nit is here .\n")
        self.files_given = ["--hypotheses", "hyp", "--reference", "ref"]

    def test_it_prints_the_line_of_multi_bleu(self):
        lines = self.run_well("bleu", *self.files_given).splitlines()
        self.assertEqual(lines[0], "BLEU = 36.87, 72.7/44.4/28.6/20.0 (BP=1.000, ratio=1.000, "
                                   "hyp_len=11, ref_len=11)")
        self.assertRegex(lines[1], r"^signature: nrefs:1\|case:mixed\|eff:no\|tok:none\|"
                                   r"smooth:none\|version:memfloor-\d+\.\d+\.\d+$")

    def test_options(self):
        result = strict_json(self.run_well("bleu", *self.files_given, "--json", "--lower-case",
                                           "--tokenize", "13a"))
        self.assertEqual(result["correct"], [10, 7, 4, 2])
        self.assertEqual(result["total"], [11, 9, 7, 5])
        self.assertIn("case:lc|eff:no|tok:13a|smooth:exp", result["signature"])

    def test_refusals(self):
        self.write("short", "one\n")
        self.write("empty", "")
        self.write("latin", b"fa\xe7ade\n")
        refused = self.assert_refused
        refused("bleu", words="bleu needs --hypotheses FILE and --reference FILE")
        refused("bleu", "--hypotheses", "hyp", words="bleu needs")
        refused("bleu", "--hypotheses", "short", "--reference", "ref",
                words=["'short' has 1 lines, but 'ref' has 2", "the same sentences"])
        refused("bleu", "--hypotheses", "none", "--reference", "ref", words="'none': No such file")
        refused("bleu", "--hypotheses", "empty", "--reference", "ref", words="'empty': it is empty")
        refused("bleu", "--hypotheses", "latin", "--reference", "short",
                words="'latin' is not valid UTF-8 in line 1, byte 3")
        refused("bleu", *self.files_given, "--tokenize", "zh", words="takes none or 13a, not 'zh'")
        refused("list", "--hypotheses", "x", words="--hypotheses does not go with list")


if __name__ == "__main__":
    unittest.main()
