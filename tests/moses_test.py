"""scripts/moses.py against answers of Moses' own Perl scripts."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
sys.dont_write_bytecode = True
try:
    import moses
except ModuleNotFoundError:
    moses = None
MISSING = "sacremoses is missing; scripts/setup installs it"


@unittest.skipIf(moses is None, MISSING)
class Tokens(unittest.TestCase):
    """Answers of Moses' own tokenizer.perl and lowercase.perl (Perl 5.36)."""

    def check(self, language, cases):
        tokenizer = moses.Tokenizer(language)
        for line, expected in cases.items():
            self.assertEqual(moses.lowercase(tokenizer(line)), expected)

    def test_english(self):
        self.check("en", {
            "They moved to the U.S.": "they moved to the u.s .",
            "Dr. No met Mr. P.": "dr. no met mr. p .",
            "He said No. 5 and No. Then Art. 3 left.":
                "he said no. 5 and no . then art. 3 left .",
            "I've 5,300 of the 1990's \"things\", don't I?":
                "i &apos;ve 5,300 of the 1990 &apos;s &quot; things &quot; , don &apos;t i ?",
            "rock'n'roll is the dogs' life 'tis":
                "rock &apos;n&apos;roll is the dogs &apos; life &apos; tis",
            "one...two .. three....": "one ... two .. three ....",
            "a|b <c> [d] & 100%": "a &#124; b &lt; c &gt; &#91; d &#93; &amp; 100 %",
        })

    def test_german(self):
        self.check("de", {
            "Er kam z.B. um 5 Uhr, d.h. am 3. Mai usw.":
                "er kam z.b. um 5 uhr , d.h. am 3. mai usw .",
            "Das war 1,5 Mio. Euro wert, bzw. mehr.": "das war 1,5 mio. euro wert , bzw. mehr .",
            "He said No. Then": "he said no. then",
            "Geht's so?": "geht &apos; s so ?",
        })

    def test_other_scripts_and_controls(self):
        for language in ("de", "en"):
            self.check(language, {
                "中文 and 日本語 mixed中a한글b": "中文 and 日本語 mixed中a한글b",
                "x٣,y ½,z 5,": "x٣ , y ½ , z 5 ,",
                "Σίσυφος ΟΔΟΣ İstanbul": "σίσυφος οδοσ i̇stanbul",
                "क् कि": "क ् कि",
                "a\x1cb\x0bc\x85d\u2028e\u00a0f\u200bg": "ab c d e f \u200b g",
            })


@unittest.skipIf(moses is None, MISSING)
class Cleaning(unittest.TestCase):

    def test_the_bounds_of_length_and_ratio(self):
        def reason(source_words, target_words, max_words=175, max_ratio=1.5):
            return moses.reason_to_drop("a " * source_words, "b " * target_words, max_words,
                                        max_ratio)
        self.assertEqual([reason(1, 1), reason(175, 175), reason(3, 2), reason(2, 3)], [None] * 4)
        self.assertEqual([reason(0, 1), reason(1, 0)], ["empty"] * 2)
        self.assertEqual([reason(176, 175), reason(175, 176)], ["too_long"] * 2)
        self.assertEqual([reason(4, 2), reason(100, 151)], ["ratio"] * 2)
        self.assertEqual([reason(4, 2, max_ratio=None), reason(176, 175, max_words=None)],
                         [None] * 2)
        self.assertEqual(moses.reason_to_drop("a" * 1001, "b", 175, 1.5), "long_word")
        self.assertIsNone(moses.reason_to_drop("a" * 1000, "b", 175, 1.5))


if __name__ == "__main__":
    unittest.main()
