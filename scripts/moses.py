"""Moses' text preparation in Python: tokenizer.perl, lowercase.perl, clean-corpus-n.perl and
detokenizer.perl, as fairseq's prepare-iwslt14.sh uses them.

The tokeniser is sacremoses', corrected where it differs from the Perl original; docs/data.md lists
the differences.
"""

import regex
import sacremoses

MAX_WORD_LENGTH = 1000  # characters; clean-corpus-n.perl's default


class Tokenizer(sacremoses.MosesTokenizer):
    """tokenizer.perl -l LANGUAGE, for German and English."""

    # sacremoses spells Perl's character classes out, without CJK and with combining marks that
    # Perl has not; these are Perl's own, \p{IsAlnum}, \p{IsAlpha} and \p{IsN}.
    PAD_NOT_ISALNUM = regex.compile(r"([^\p{Alphabetic}\p{Nd}\s.'`,-])"), r" \1 "
    COMMA_SEPARATE_1 = regex.compile(r"(\P{N}),"), r"\1 , "
    COMMA_SEPARATE_2 = regex.compile(r",(\P{N})"), r" , \1"
    COMMA_SEPARATE_3 = regex.compile(r"(\p{N}),$"), r"\1 , "
    ENGLISH_SPECIFIC_APOSTROPHE = [
        (regex.compile(r"(\P{Alphabetic})'(\P{Alphabetic})"), r"\1 ' \2"),
        (regex.compile(r"([^\p{Alphabetic}\p{N}])'(\p{Alphabetic})"), r"\1 ' \2"),
        (regex.compile(r"(\p{Alphabetic})'(\P{Alphabetic})"), r"\1 ' \2"),
        (regex.compile(r"(\p{Alphabetic})'(\p{Alphabetic})"), r"\1 '\2"),
        (regex.compile(r"(\p{N})'(s)"), r"\1 '\2"),
    ]
    ALPHABETIC = regex.compile(r"\p{Alphabetic}")
    LOWERCASE = regex.compile(r"\p{Lowercase}+")

    # Control characters that are space to Python but not to Perl, which deletes them.
    CONTROLS = regex.compile(r"[\x00-\x08\x0e-\x1f]")
    LAST_PERIOD = regex.compile(r"(?<=\S)\.$")

    def isanyalpha(self, text):
        return self.ALPHABETIC.search(text) is not None

    def islower(self, text):
        return self.LOWERCASE.fullmatch(text) is not None

    def handles_nonbreaking_prefixes(self, text):
        """Also splits the period off a line's last word, which Perl never takes for a prefix."""
        return self.LAST_PERIOD.sub(" .", super().handles_nonbreaking_prefixes(text))

    def __call__(self, line):
        return self.tokenize(self.CONTROLS.sub("", line), return_str=True)


def lowercase(line):
    """lowercase.perl: Perl's lc knows no final sigma."""
    return line.replace("Σ", "σ").lower()


def reason_to_drop(source, target, max_words, max_ratio):
    """Why clean-corpus-n.perl 1 MAX_WORDS -ratio MAX_RATIO drops a tokenised pair, or None.

    max_words and max_ratio may be None: no such limit.
    """
    lengths = [len(source.split()), len(target.split())]
    if min(lengths) == 0:
        return "empty"
    if max_words is not None and max(lengths) > max_words:
        return "too_long"
    if max_ratio is not None and max(lengths) / min(lengths) > max_ratio:
        return "ratio"
    if max(map(len, source.split() + target.split())) > MAX_WORD_LENGTH:
        return "long_word"
    return None


def detokenizer(language):
    """detokenizer.perl -l LANGUAGE, as a function of a line."""
    moses = sacremoses.MosesDetokenizer(language)
    return lambda line: moses.detokenize(line.split(" "))
