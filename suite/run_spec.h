// The run spec: one value that says everything about a run. The benchmark's name, the prediction,
// the result file and the command line derive from it; flag --a-b is key a_b.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace memfloor {

enum class ModelFamily;

struct RunSpec {
  std::string model = "wrn28_2";
  std::string data = "synthetic";
  std::string data_dir;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string norm;                        // of wide ResNets; empty: batch
  std::string rounding;                    // empty: the precision's own
  double loss_scale = 0;                   // where it begins; 0: the precision's own
  std::int64_t loss_scale_window = 16384;  // minibatches without an overflow before it doubles
  double sparsity = 0;
  std::string sparse_method = "dsr";    // matters where sparsity is not 0
  std::string sparse_scope = "layers";  // likewise
  std::string sparse_index = "bitmap";  // likewise
  double rewire_stop = 0.95;            // likewise; a share of the run
  // Of images; before validate(): 0 = 100, and all of the batch.
  std::int64_t batch_size = 0;
  std::int64_t microbatch = 0;
  // Of translation; before validate(): 0 = 4000, and all of the batch.
  std::int64_t max_tokens = 0;
  std::int64_t microbatch_tokens = 0;
  std::string conv_impl;             // empty: band
  std::int64_t loss_chunk = 0;       // rows; 0: all
  std::int64_t sentence_length = 0;  // 0: sentences differ
  std::int64_t test_sentences = 0;   // 0: all
  std::int64_t average_epochs = 0;   // 0: the recipe's; 1: the last weights as they are
  std::string checkpoint = "none";
  std::string preset;
  std::string recipe = "paper";
  std::int64_t epochs = 0;       // before validate(): 0 = the recipe's; after: 0 = no limit
  std::int64_t max_steps = 0;    // 0: no limit
  std::int64_t test_images = 0;  // 0: all
  std::int64_t seed = 1;
  std::int64_t threads = 0;         // before validate(): 0 = one per core
  std::int64_t memory_budget = 0;   // bytes; 0: none
  std::int64_t bn_recalibrate = 0;  // samples; 0: off
  bool augment = true;
  std::string order = "shuffled";
  double learning_rate = 0;  // 0: the recipe's schedule; else this, constant

  bool operator==(const RunSpec&) const = default;
};

/// One key of the spec: its flag, its JSON key, its place in RunSpec, one line of help.
struct SpecKey {
  enum class Json { plain, zero_is_null, empty_is_null };
  using Member = std::variant<std::string RunSpec::*, std::int64_t RunSpec::*, double RunSpec::*,
                              bool RunSpec::*>;
  std::string name;
  Member member;
  std::string help;
  Json json = Json::plain;  // how "not given" is written

  std::string flag() const;  // "--batch-size"
};
const std::vector<SpecKey>& spec_keys();

/// Sets one key from the command line's text. Throws InputError for text that is not of the key's
/// type.
void set_from_text(RunSpec& spec, const SpecKey& key, const std::string& text);

/// Every key, in the table's order of names.
nlohmann::json to_json(const RunSpec& spec);
/// Strict: throws InputError for an unknown key or a wrong type; absent keys stay as they are. A
/// preset among the keys is set first: the other keys win over it.
void set_from_json(RunSpec& spec, const nlohmann::json& json, const std::string& source);
void set_from_preset(RunSpec& spec, const std::string& preset);
RunSpec read_spec_file(const std::string& path);

/// Fills what was left to defaults and throws InputError, one sentence, for a spec that cannot run.
RunSpec validated(RunSpec spec);

/// Whether models of the family have the key: some are of images only, some of text only.
bool key_fits(const std::string& key, ModelFamily family);

/// How many updates a run has, for so many in an epoch.
std::int64_t updates_of(const RunSpec& spec, std::int64_t updates_per_epoch);

/// "model=wrn28_2/data=synthetic/precision=bf16_mixed": every key that shapes a step and differs
/// from its default, model and data always. The spec may be one that validated() refuses, but for
/// its model.
std::string case_name(const RunSpec& spec);
/// "/epochs=3/order=sequential": those of `keys` that are given and differ from their defaults.
std::string key_values(const RunSpec& spec, const std::vector<std::string>& keys);

/// The bytes of checkpoint "budget:7MiB", nothing for another checkpoint.
std::optional<std::int64_t> checkpoint_budget(const RunSpec& spec);

/// Bytes: "7340032", "7MiB", "7.5MB", "64KiB", "1GiB".
std::int64_t parse_bytes(const std::string& text);

}  // namespace memfloor
