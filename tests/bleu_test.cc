// BLEU against figures from outside: a whole system output scored by multi-bleu.perl, and the
// numbers in sacrebleu's own unit tests (test/test_bleu.py, test/test_sentence_bleu.py at commit
// f615c72, Apache-2.0).
#include "suite/bleu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/text_lines.h"
#include "data_loaders/bpe.h"

namespace memfloor {
namespace {

using Lines = std::vector<std::string>;

constexpr BleuOptions kMultiBleu;
constexpr BleuOptions kSacrebleu{.tokenizer = BleuTokenizer::v13a, .smoothing = BleuSmoothing::exp};

double against(const Lines& hypotheses, const std::vector<Lines>& references,
               const BleuOptions& options) {
  return score_bleu(count_ngrams(hypotheses, references, options), options).bleu;
}

// ---- a whole system's output --------------------------------------------------------------------

TEST(Bleu, EqualsMultiBleuOnARealSystem) {
  const char* folder = std::getenv("MEMFLOOR_TEST_DATA_DIR");
  const std::filesystem::path data = folder ? folder : "";
  if (!folder || !std::filesystem::is_directory(data / "bleu_ref"))
    GTEST_SKIP() << "set MEMFLOOR_TEST_DATA_DIR to the folder that holds bleu_ref/ and iwslt14/";
  std::ifstream file(data / "bleu_ref" / "iwslt14.expected.json");
  const nlohmann::json expected = nlohmann::json::parse(file)["de-en"];
  const BleuScore score = bleu(read_lines(data / "bleu_ref" / "pytorch-iwslt.test.de-en.hyp"),
                               read_lines(data / "iwslt14" / "test.en"), kMultiBleu);
  EXPECT_EQ(to_text(score), expected["multi-bleu.perl"]);
  EXPECT_EQ(to_text(score),
            "BLEU = 34.26, 69.9/43.9/29.6/20.4 (BP=0.928, ratio=0.931, hyp_len=122097, "
            "ref_len=131156)");
  EXPECT_EQ(nlohmann::json(score.counts.correct), expected["counts"]);
  EXPECT_EQ(nlohmann::json(score.counts.total), expected["totals"]);
  EXPECT_EQ(score.counts.hypothesis_length, expected["hyp_len"]);
  EXPECT_EQ(score.counts.reference_length, expected["ref_len"]);
  EXPECT_NEAR(score.bleu, expected["bleu"].get<double>(), 1e-10);
  EXPECT_NEAR(score.brevity_penalty, expected["bp"].get<double>(), 1e-12);
}

// ---- sacrebleu's unit tests ---------------------------------------------------------------------

const Lines kHypotheses = {"The dog bit the man.", "It wasn't surprising.",
                           "The man had just bitten him."};
const std::vector<Lines> kReferences = {
    {"The dog bit the man.", "It was not unexpected.", "The man bit him first."},
    {"The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."}};

TEST(Bleu, EqualsSacrebleuWithTwoReferences) {
  BleuOptions options = kSacrebleu;
  EXPECT_NEAR(against(kHypotheses, kReferences, options), 48.530827, 1e-6);
  options.smoothing = BleuSmoothing::none;
  EXPECT_NEAR(against(kHypotheses, kReferences, options), 48.530827, 1e-6);
  options.smoothing = BleuSmoothing::exp;
  options.tokenizer = BleuTokenizer::none;
  EXPECT_NEAR(against(kHypotheses, kReferences, options), 49.1919566, 1e-6);
  EXPECT_EQ(against({"", "", ""}, kReferences, kSacrebleu), 0);
}

TEST(Bleu, EqualsSacrebleuForEveryOrder) {
  const double expected[] = {77.65, 60.50, 53.93, 48.53, 46.14, 43.28};
  for (int order = 1; order <= 6; ++order) {
    BleuOptions options = kSacrebleu;
    options.order = order;
    EXPECT_NEAR(against(kHypotheses, kReferences, options), expected[order - 1], 0.005) << order;
  }
}

TEST(Bleu, EqualsSacrebleusSmoothingByAFloor) {
  const BleuOptions options{
      .smoothing = BleuSmoothing::floor, .smoothing_value = 0.01, .effective_order = true};
  EXPECT_EQ(bleu(Lines{"this is a test", "another test"}, {"ref1", "ref2"}, options).bleu, 0);
  EXPECT_NEAR(bleu(Lines{"this is a test"}, {"this is a test"}, options).bleu, 100, 1e-9);
  EXPECT_NEAR(bleu(Lines{"this is a fest"}, {"this is a test"}, options).bleu, 22.3606797749979,
              1e-9);
  EXPECT_NEAR(bleu(Lines{"test"}, {"a test"}, options).bleu, 36.78794411714425, 1e-9);
  EXPECT_NEAR(bleu(Lines{"a test"}, {"a test"}, options).bleu, 100, 1e-9);
  EXPECT_NEAR(bleu(Lines{"a little test"}, {"a test"}, options).bleu, 3.218297948685433, 1e-9);
}

TEST(Bleu, EqualsSacrebleusCounts) {
  const Lines hypotheses = {"am I am a character sequence"};
  const Lines references = {"I am a symbol string sequence a a"};
  BleuOptions options{.smoothing = BleuSmoothing::floor, .smoothing_value = 0.1};
  const BleuScore score = bleu(hypotheses, references, options);
  EXPECT_EQ(score.counts.correct, (std::vector<std::int64_t>{4, 2, 1, 0}));
  EXPECT_EQ(score.counts.total, (std::vector<std::int64_t>{6, 5, 4, 3}));
  EXPECT_NEAR(score.bleu, 15.55722182, 1e-6);
  options.smoothing_value = 0;
  EXPECT_EQ(bleu(hypotheses, references, options).bleu, 0);

  const BleuCounts counts{{9, 7, 5, 3}, {10, 8, 6, 4}, 11, 11};
  EXPECT_NEAR(score_bleu(counts, kMultiBleu).bleu, 83.75922397, 1e-6);
}

TEST(Bleu, EqualsSacrebleuForALineWithEverySmoothing) {
  const Lines reference = {"producţia de zahăr brut se exprimă în zahăr alb;"};
  const Lines line = {"Producția de zahăr primă va fi exprimată în ceea ce privește zahărul alb;"};
  const struct {
    BleuTokenizer tokenizer;
    BleuSmoothing smoothing;
    double value, expected;
  } cases[] = {{BleuTokenizer::v13a, BleuSmoothing::exp, 0, 8.493},
               {BleuTokenizer::v13a, BleuSmoothing::none, 0, 0.0},
               {BleuTokenizer::v13a, BleuSmoothing::floor, 0.1, 4.51688},
               {BleuTokenizer::v13a, BleuSmoothing::floor, 0.5, 10.10},
               {BleuTokenizer::v13a, BleuSmoothing::add_k, 1, 14.882},
               {BleuTokenizer::v13a, BleuSmoothing::add_k, 2, 21.389},
               {BleuTokenizer::none, BleuSmoothing::exp, 0, 7.347}};
  for (const auto& c : cases) {
    const BleuOptions options{.tokenizer = c.tokenizer,
                              .smoothing = c.smoothing,
                              .smoothing_value = c.value,
                              .effective_order = true};
    EXPECT_NEAR(bleu(line, reference, options).bleu, c.expected, 0.005) << bleu_signature(options);
  }
}

// ---- edges --------------------------------------------------------------------------------------

TEST(Bleu, EdgesBehave) {
  // As multi-bleu.perl, but for the empty output, by whose length it would divide.
  EXPECT_EQ(to_text(bleu(Lines{"", ""}, {"a b", "c"}, kMultiBleu)),
            "BLEU = 0.00, 0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=3)");
  EXPECT_EQ(to_text(bleu(Lines{"a", "b"}, {"a", "b"}, kMultiBleu)),
            "BLEU = 0.00, 100.0/0.0/0.0/0.0 (BP=1.000, ratio=1.000, hyp_len=2, ref_len=2)");
  EXPECT_EQ(to_text(bleu(Lines{"a b c d e", ""}, {"a b c d e", "f"}, kMultiBleu)),
            "BLEU = 81.87, 100.0/100.0/100.0/100.0 (BP=0.819, ratio=0.833, hyp_len=5, ref_len=6)");
  EXPECT_EQ(to_text(bleu(Lines{"a b c d"}, {""}, kMultiBleu)),
            "BLEU = 0.00, 0.0/0.0/0.0/0.0 (BP=1.000, ratio=0.000, hyp_len=4, ref_len=0)");
  EXPECT_NEAR(bleu(Lines{"a b c d", "e f"}, {"a b c d", "e f"}, kMultiBleu).bleu, 100, 1e-12);
  EXPECT_NEAR(
      bleu(Lines{"The cat sat, then slept."}, {"The cat sat, then slept."}, kSacrebleu).bleu, 100,
      1e-12);
  // A word counts no more often than the reference has it.
  EXPECT_EQ(bleu(Lines{"the the the"}, {"the cat"}, kMultiBleu).counts.correct[0], 1);
  // Order 2 of "a b" is not order 1 of a word that holds a space of another kind.
  EXPECT_EQ(bleu(Lines{"a\u00a0b"}, {"a b"}, kMultiBleu).counts.total[1], 0);
  EXPECT_EQ(bleu(Lines{"a\u00a0b"}, {"a b"}, kSacrebleu).counts.correct[1], 1);
}

TEST(Bleu, SignaturesSayHowTheScoreWasMade) {
  const auto starts = [](const BleuOptions& options, const std::string& text) {
    return bleu_signature(options).starts_with(text + "|version:memfloor-");
  };
  BleuOptions options = kSacrebleu;
  options.lower_case = true;
  EXPECT_TRUE(starts(options, "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp"));
  EXPECT_TRUE(starts(kMultiBleu, "nrefs:1|case:mixed|eff:no|tok:none|smooth:none"));
  options = {.smoothing = BleuSmoothing::floor, .smoothing_value = 0.1, .effective_order = true};
  EXPECT_TRUE(starts(options, "nrefs:1|case:mixed|eff:yes|tok:none|smooth:floor[0.10]"));
}

// ---- words --------------------------------------------------------------------------------------

// Expected: what the four substitutions of sacrebleu's tokenizer_re make in Python.
TEST(BleuWords, AreThoseOf13a) {
  const std::pair<const char*, const char*> cases[] = {
      {"Hello, world!", "Hello , world !"},
      {"It costs 1,000.50 dollars.", "It costs 1,000.50 dollars ."},
      {"a 3-4 draw, e.g. 5-", "a 3 - 4 draw , e . g . 5 -"},
      {"...and so on...", ". . . and so on . . ."},
      {".5,,6.,7", ". 5 , , 6 . , 7"},
      {"x.y.z,1.a,2", "x . y . z , 1 . a , 2"},
      {"1.2.3,4-5-6-7", "1.2.3,4 - 5 - 6 - 7"},
      {"a.-b,-c", "a . -b , -c"},
      {"12.,", "12 . ,"},
      {"say &quot;a &amp;lt; b&quot;", "say \" a < b \""},
      {"<skipped>no &lt;b&gt; <skip>", "no < b > < skip >"},
      {"don't / can't [x]{y}~^_`|\\", "don't / can't [ x ] { y } ~ ^ _ ` | \\"},
      {"100%-$3@#*+=:;?()", "100 % - $ 3 @ # * + = : ; ? ( )"},
      {"über-é.ñ,5", "über-é . ñ , 5"},
      {"½.٥,5", "½ . ٥ , 5"},
      {"€5.00—ok…", "€5.00—ok…"},
      {"tab\there\u00a0and\u2003there\u3000end", "tab here and there end"},
      {"x\x1cy\u0085z\u200bw", "x y z\u200bw"},
      {"  ", ""},
      {"", ""}};
  for (const auto& [line, words] : cases)
    EXPECT_EQ(bleu_words(line, BleuTokenizer::v13a, false), words) << line;
}

TEST(BleuWords, AreLowerCaseWhereAsked) {
  EXPECT_EQ(bleu_words("It's DÉJÀ-VU, Ÿ Żółw Ж!", BleuTokenizer::v13a, true),
            "it's déjà-vu , ÿ żółw ж !");
  EXPECT_EQ(bleu_words(" The  DÉ\tX\r", BleuTokenizer::none, true), "the dÉ x");
  EXPECT_EQ(bleu_words("A, b.", BleuTokenizer::none, false), "A, b.");
}

TEST(Bpe, WordsBecomeWholeAgain) {
  EXPECT_EQ(without_bpe("th@@ is is a te@@ st@@ s ."), "this is a tests .");
  EXPECT_EQ(without_bpe("cut sh@@"), "cut sh");
  EXPECT_EQ(without_bpe("a@@b @@c d@@@ e"), "a@@b @@c d@e");
  EXPECT_EQ(without_bpe(""), "");
  EXPECT_EQ(without_bpe("@@"), "");
}

}  // namespace
}  // namespace memfloor
