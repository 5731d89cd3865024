#include "suite/run_spec.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/error.h"
#include "engine/dense_store.h"
#include "suite/models.h"
#include "suite/presets.h"
#include "suite/recipe.h"
#include "techniques/registry.h"

namespace memfloor {

std::string SpecKey::flag() const {
  std::string text = "--" + name;
  for (char& c : text)
    if (c == '_') c = '-';
  return text;
}

const std::vector<SpecKey>& spec_keys() {
  using Json = SpecKey::Json;
  static const std::vector<SpecKey> keys{
      {"model", &RunSpec::model,
       "wrn28_2, or any wrn<depth>_<width>; dynamic_conv, or "
       "dynamic_conv<encoder layers>_<decoder layers>_<channels>"},
      {"data", &RunSpec::data, "synthetic; cifar10 for images, translation for a prepared corpus"},
      {"data_dir", &RunSpec::data_dir, "folder that holds the data set's files",
       Json::empty_is_null},
      {"device", &RunSpec::device, "cpu"},
      {"precision", &RunSpec::precision,
       "fp32; fp16, bf16: all in 16 bits; fp16_master, bf16_master; fp16_mixed, bf16_mixed"},
      {"rounding", &RunSpec::rounding,
       "of 16-bit weights and state: nearest or stochastic (default: the precision's)",
       Json::empty_is_null},
      {"loss_scale", &RunSpec::loss_scale,
       "where dynamic loss scaling begins (default: 128 in the fp16 modes, else none)",
       Json::zero_is_null},
      {"loss_scale_window", &RunSpec::loss_scale_window,
       "minibatches without an overflow after which the loss scale doubles"},
      {"norm", &RunSpec::norm,
       "of wide ResNets: batch (the default), or group: independent of batch and microbatch",
       Json::empty_is_null},
      {"sparsity", &RunSpec::sparsity,
       "share of the residual blocks' 3x3 weights that are zero; 0: off"},
      {"sparse_method", &RunSpec::sparse_method,
       "how the zeros move, where sparsity is above 0: dsr, or another sparse method"},
      {"sparse_scope", &RunSpec::sparse_scope,
       "layers, or all: embeddings and output matrices of vocabularies too"},
      {"rewire_stop", &RunSpec::rewire_stop,
       "share of the run after which the zeros stay where they are"},
      {"sparse_index", &RunSpec::sparse_index, "how their places are stored: bitmap, csr16, csr32"},
      {"batch_size", &RunSpec::batch_size, "images of one update (default: 100)",
       Json::zero_is_null},
      {"microbatch", &RunSpec::microbatch, "images of one part (default: the batch size)",
       Json::zero_is_null},
      {"max_tokens", &RunSpec::max_tokens,
       "translation: sentences of one update times the longest is at most this (default: 4000)",
       Json::zero_is_null},
      {"microbatch_tokens", &RunSpec::microbatch_tokens,
       "the same of one part; a sentence always fits (default: all)", Json::zero_is_null},
      {"conv_impl", &RunSpec::conv_impl,
       "dynamic convolution: band (expanded matrices, as fairseq trains; the default) or direct",
       Json::empty_is_null},
      {"loss_chunk", &RunSpec::loss_chunk,
       "translation: positions whose logits exist at a time; 0: all"},
      {"sentence_length", &RunSpec::sentence_length,
       "of synthetic sentences, source and target, the end mark included (default: they differ)",
       Json::zero_is_null},
      {"test_sentences", &RunSpec::test_sentences,
       "translate the first so many of the test set only (default: all)", Json::zero_is_null},
      {"average_epochs", &RunSpec::average_epochs,
       "translation: epochs whose last weights are averaged at the end; 1: none (default: the "
       "recipe's)",
       Json::zero_is_null},
      {"checkpoint", &RunSpec::checkpoint,
       "which activations are recomputed: none (off), or a plan, see docs/command-line.md"},
      {"preset", &RunSpec::preset, "named settings, which other flags override; see: memfloor list",
       Json::empty_is_null},
      {"recipe", &RunSpec::recipe,
       "paper (as published) or short (meant for CPUs); see: memfloor list"},
      {"epochs", &RunSpec::epochs,
       "passes over the training data (default: the recipe's; 0: as --max-steps says)"},
      {"max_steps", &RunSpec::max_steps, "stop after so many updates; the schedule ends there too",
       Json::zero_is_null},
      {"test_images", &RunSpec::test_images, "evaluate on the first so many only (default: all)",
       Json::zero_is_null},
      {"seed", &RunSpec::seed, "of weights, order and augmentation"},
      {"threads", &RunSpec::threads, "default: one per core; results do not depend on it"},
      {"memory_budget", &RunSpec::memory_budget, "refuse to use more, as in 400MB or 7MiB",
       Json::zero_is_null},
      {"bn_recalibrate", &RunSpec::bn_recalibrate,
       "training samples that batch norm's statistics are re-estimated from before an evaluation; "
       "0: off"},
      {"augment", &RunSpec::augment, "reflect-pad 4, random crop, horizontal flip"},
      {"order", &RunSpec::order, "shuffled or sequential"},
      {"learning_rate", &RunSpec::learning_rate, "constant, instead of the recipe's schedule",
       Json::zero_is_null},
  };
  return keys;
}

std::int64_t parse_bytes(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const std::pair<const char*, double> units[] = {
      {"", 1},     {"B", 1},      {"kB", 1e3},      {"KB", 1e3},        {"MB", 1e6},
      {"GB", 1e9}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
  if (error == std::errc{} && value >= 0 && std::isfinite(value))
    for (const auto& [name, factor] : units)
      if (unit == name && value * factor < 9e18)
        return static_cast<std::int64_t>(std::floor(value * factor));
  throw InputError(
      concat("'", text, "' is not a number of bytes; write it like 7340032, 7MiB or 7.5MB"));
}

namespace {

template <class Number>
Number parse_number(const std::string& text, const std::string& flag, const char* what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw InputError(concat(flag, " takes ", what, ", not '", text, "'"));
  return value;
}

std::int64_t bytes_for(const std::string& text, const std::string& what) {
  try {
    return parse_bytes(text);
  } catch (const InputError& error) {
    throw InputError(concat(what, ": ", error.what()));
  }
}

bool parse_bool(const std::string& text, const std::string& flag) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  throw InputError(concat(flag, " takes true or false, not '", text, "'"));
}

// A plan is one of the model's chain.
void check_checkpoint(const RunSpec& spec) {
  if (checkpoint_budget(spec)) return;
  DenseStore parameters;
  RunningStatistics running;
  const auto network = make_task(spec, DataUse::none)->make_network(parameters, running, {});
  make_retention_plan(spec.checkpoint, network->chain());
}

}  // namespace

std::optional<std::int64_t> checkpoint_budget(const RunSpec& spec) {
  constexpr std::string_view kPrefix = "budget:";
  if (!spec.checkpoint.starts_with(kPrefix)) return std::nullopt;
  return bytes_for(spec.checkpoint.substr(kPrefix.size()), "--checkpoint budget");
}

void set_from_text(RunSpec& spec, const SpecKey& key, const std::string& text) {
  if (key.name == "memory_budget") {
    spec.memory_budget = bytes_for(text, key.flag());
    return;
  }
  std::visit(
      [&](auto member) {
        using T = std::remove_reference_t<decltype(spec.*member)>;
        if constexpr (std::is_same_v<T, std::string>)
          spec.*member = text;
        else if constexpr (std::is_same_v<T, bool>)
          spec.*member = parse_bool(text, key.flag());
        else if constexpr (std::is_same_v<T, double>)
          spec.*member = parse_number<double>(text, key.flag(), "a number");
        else
          spec.*member = parse_number<std::int64_t>(text, key.flag(), "a whole number");
      },
      key.member);
}

nlohmann::json to_json(const RunSpec& spec) {
  nlohmann::json json = nlohmann::json::object();
  for (const SpecKey& key : spec_keys())
    std::visit(
        [&](auto member) {
          const auto& value = spec.*member;
          if (key.json != SpecKey::Json::plain && value == std::decay_t<decltype(value)>{})
            json[key.name] = nullptr;
          else
            json[key.name] = value;
        },
        key.member);
  return json;
}

void set_from_preset(RunSpec& spec, const std::string& preset) {
  set_from_json(spec, find_preset(preset, family_of(spec.model)).settings,
                concat("preset ", preset));
  spec.preset = preset;
}

void set_from_json(RunSpec& spec, const nlohmann::json& json, const std::string& source) {
  if (!json.is_object())
    throw InputError(concat(source, " does not hold a JSON object of spec keys"));
  if (const auto model = json.find("model"); model != json.end() && model->is_string())
    spec.model = *model;  // whose presets count
  if (const auto preset = json.find("preset"); preset != json.end() && preset->is_string())
    set_from_preset(spec, preset->get<std::string>());
  for (const auto& [name, value] : json.items()) {
    const auto& keys = spec_keys();
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const SpecKey& k) { return k.name == name; });
    if (key == keys.end())
      throw InputError(
          concat(source, " has the unknown key '", name, "'; see the keys with: memfloor list"));
    if (value.is_null() && key->json != SpecKey::Json::plain) continue;
    if (name == "memory_budget" && value.is_string()) {
      spec.memory_budget =
          bytes_for(value.get<std::string>(), concat(source, ": key 'memory_budget'"));
      continue;
    }
    const auto refuse = [&](const char* type) {
      throw InputError(concat(source, ": key '", name, "' takes ", type, ", not ", value.dump()));
    };
    std::visit(
        [&](auto member) {
          using T = std::remove_reference_t<decltype(spec.*member)>;
          if constexpr (std::is_same_v<T, std::string>) {
            if (!value.is_string()) refuse("a string");
          } else if constexpr (std::is_same_v<T, bool>) {
            if (!value.is_boolean()) refuse("true or false");
          } else if constexpr (std::is_same_v<T, double>) {
            if (!value.is_number()) refuse("a number");
          } else if (!value.is_number_integer() ||
                     (value.is_number_unsigned() &&
                      value.template get<std::uint64_t>() > INT64_MAX)) {
            refuse("a whole number");
          }
          spec.*member = value.template get<T>();
        },
        key->member);
  }
}

RunSpec read_spec_file(const std::string& path) {
  const std::string source = concat("the spec file '", path, "'");
  std::ifstream file(path);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored))
    throw InputError(concat("cannot read ", source, ": ",
                            file ? "it is a folder" : std::strerror(errno), "; check the path"));
  using Json = nlohmann::json;
  std::set<std::string> names;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 &&
        !names.insert(value.get<std::string>()).second)
      throw InputError(concat(source, " has the key ", value.dump(), " twice; keep one"));
    return true;
  };
  try {
    RunSpec spec;
    set_from_json(spec, Json::parse(file, check), source);
    return spec;
  } catch (const Json::parse_error& error) {
    throw InputError(concat(source, " is not JSON at byte ", error.byte,
                            "; mend it, or begin with default_spec of: memfloor list --json"));
  } catch (const Json::out_of_range&) {
    throw InputError(concat(source, " has a number that is too large"));
  }
}

namespace {

template <class... Sentence>
void require(bool good, const Sentence&... sentence) {
  if (!good) throw InputError(concat(sentence...));
}

// Keys of one family of models only.
constexpr const char* kImageKeys[] = {"norm", "batch_size", "microbatch", "test_images",
                                      "bn_recalibrate"};
constexpr const char* kTextKeys[] = {"max_tokens",    "microbatch_tokens", "conv_impl",
                                     "loss_chunk",    "sentence_length",   "test_sentences",
                                     "average_epochs"};

// The key belongs to the other family of models.
void require_unset(const RunSpec& spec, const std::string& name) {
  for (const SpecKey& key : spec_keys())
    if (key.name == name)
      std::visit(
          [&](auto member) {
            require(spec.*member == RunSpec{}.*member, key.flag(), " does not go with --model ",
                    spec.model, "; leave it out");
          },
          key.member);
}

void validate_images(RunSpec& spec) {
  make_wide_resnet_config(spec.model);
  for (const char* key : kTextKeys) require_unset(spec, key);
  require(spec.data == "synthetic" || spec.data == "cifar10", "--data '", spec.data,
          "' is not known for images; this version knows: synthetic, cifar10");
  if (spec.norm.empty()) spec.norm = "batch";
  make_norm(spec.norm);
  if (spec.batch_size == 0) spec.batch_size = 100;
  require(spec.batch_size >= 1 && spec.batch_size <= 1000000,
          "--batch-size is between 1 and 1000000, not ", spec.batch_size);
  if (spec.microbatch == 0) spec.microbatch = spec.batch_size;
  require(spec.microbatch >= 1 && spec.microbatch <= spec.batch_size,
          "--microbatch is between 1 and the batch size (", spec.batch_size, "), not ",
          spec.microbatch);
  require(spec.test_images >= 0, "--test-images is 0 (all) or more, not ", spec.test_images);
  require(spec.bn_recalibrate >= 0, "--bn-recalibrate is 0 (off) or a number of samples, not ",
          spec.bn_recalibrate);
  require(spec.bn_recalibrate == 0 || spec.norm == "batch",
          "--bn-recalibrate is for batch norm; --norm ", spec.norm, " has no running statistics");
}

void validate_translation(RunSpec& spec) {
  make_dynamic_conv_config(spec);
  for (const char* key : kImageKeys) require_unset(spec, key);
  spec.augment = false;
  require(spec.data == "synthetic" || spec.data == "translation", "--data '", spec.data,
          "' is not known for translation; this version knows: synthetic, translation");
  if (spec.max_tokens == 0) spec.max_tokens = 4000;
  require(spec.max_tokens >= 1 && spec.max_tokens <= 100000000,
          "--max-tokens is between 1 and 100000000, not ", spec.max_tokens);
  if (spec.microbatch_tokens == 0) spec.microbatch_tokens = spec.max_tokens;
  require(spec.microbatch_tokens >= 1 && spec.microbatch_tokens <= spec.max_tokens,
          "--microbatch-tokens is between 1 and --max-tokens (", spec.max_tokens, "), not ",
          spec.microbatch_tokens);
  require(spec.loss_chunk >= 0, "--loss-chunk is 0 (all) or a number of positions, not ",
          spec.loss_chunk);
  require(spec.average_epochs >= 0, "--average-epochs is at least 1, not ", spec.average_epochs);
  require(spec.test_sentences >= 0, "--test-sentences is 0 (all) or more, not ",
          spec.test_sentences);
  require(spec.sentence_length == 0 || spec.data == "synthetic",
          "--sentence-length is for --data synthetic; a corpus has its own sentences");
  require(spec.sentence_length == 0 ||
              (spec.sentence_length >= 2 && spec.sentence_length <= spec.max_tokens),
          "--sentence-length is between 2 and --max-tokens (", spec.max_tokens, "), not ",
          spec.sentence_length);
  if (spec.conv_impl.empty()) spec.conv_impl = "band";
  // The search takes a block's input for all that crosses its border: here the encoder's output
  // crosses those of the whole decoder.
  require(!checkpoint_budget(spec),
          "--checkpoint budget:BYTES searches plans for wide ResNets only; for ", spec.model,
          " name a plan, or see what fits with: memfloor plan --memory-budget BYTES --model ",
          spec.model);
}

}  // namespace

bool key_fits(const std::string& key, ModelFamily family) {
  const auto in = [&](const auto& keys) {
    return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
  };
  return family == ModelFamily::wide_resnet ? !in(kTextKeys) : !in(kImageKeys);
}

RunSpec validated(RunSpec spec) {
  const ModelFamily family = family_of(spec.model);
  const PrecisionPolicy precision = make_precision(spec.precision, spec.rounding);
  require(spec.loss_scale_window >= 1, "--loss-scale-window is at least 1, not ",
          spec.loss_scale_window);
  make_loss_scaler(precision, spec.loss_scale, spec.loss_scale_window);
  family == ModelFamily::wide_resnet ? validate_images(spec) : validate_translation(spec);
  check_checkpoint(spec);
  require(spec.device == "cpu", "--device '", spec.device,
          "' is not known; this version knows: cpu");
  require(std::isfinite(spec.sparsity) && spec.sparsity >= 0 && spec.sparsity < 1,
          "--sparsity is a share in [0, 1), not ", spec.sparsity);
  if (!spec.preset.empty()) find_preset(spec.preset, family);
  const Recipe& recipe = find_recipe(spec);
  make_parameter_store({spec.sparsity, spec.sparse_method, spec.sparse_index, 1, spec.sparse_scope,
                        spec.rewire_stop});
  require(spec.epochs >= 0 && spec.epochs <= 1000000, "--epochs is between 1 and 1000000, not ",
          spec.epochs);
  require(spec.max_steps >= 0, "--max-steps is 0 (no limit) or more, not ", spec.max_steps);
  if (spec.epochs == 0) {
    spec.epochs = recipe.epochs;
    if (spec.epochs == 0 && spec.max_steps == 0) spec.max_steps = recipe.updates;
  }
  require(spec.seed >= 0 && spec.seed <= 0xffffffffll, "--seed is between 0 and 4294967295, not ",
          spec.seed);
  if (spec.threads == 0) spec.threads = std::max(1u, std::thread::hardware_concurrency());
  require(spec.threads >= 1 && spec.threads <= 1024, "--threads is between 1 and 1024, not ",
          spec.threads);
  require(spec.memory_budget >= 0, "--memory-budget is a number of bytes, not ",
          spec.memory_budget);
  require(spec.order == "shuffled" || spec.order == "sequential",
          "--order is shuffled or sequential, not '", spec.order, "'");
  // As a float, which the optimizer takes, it must be neither zero nor infinite.
  const auto rate = static_cast<float>(spec.learning_rate);
  require(spec.learning_rate == 0 || (std::isfinite(rate) && rate > 0),
          "--learning-rate is a positive number that float32 can hold, not ", spec.learning_rate);
  return spec;
}

std::int64_t updates_of(const RunSpec& spec, std::int64_t updates_per_epoch) {
  const std::int64_t updates = spec.epochs * updates_per_epoch;
  return spec.max_steps > 0 && (updates == 0 || spec.max_steps < updates) ? spec.max_steps
                                                                          : updates;
}

std::string key_values(const RunSpec& spec, const std::vector<std::string>& keys) {
  RunSpec plain;
  plain.model = spec.model;
  if (is_recipe(spec)) plain.recipe = spec.recipe;
  const nlohmann::json mine = to_json(spec), not_given = to_json(plain),
                       defaults = to_json(validated(plain));
  std::string text;
  for (const std::string& key : keys) {
    if (mine[key] == defaults[key] || mine[key] == not_given[key]) continue;
    if (key.starts_with("sparse_") && spec.sparsity == 0) continue;           // off
    if (key == "microbatch" && spec.microbatch == spec.batch_size) continue;  // off
    if (key == "microbatch_tokens" && spec.microbatch_tokens == spec.max_tokens) continue;
    text += concat("/", key, "=",
                   mine[key].is_string() ? mine[key].get<std::string>() : mine[key].dump());
  }
  return text;
}

std::string case_name(const RunSpec& spec) {
  return concat("model=", spec.model, "/data=", spec.data,
                key_values(spec, {"device", "precision", "rounding", "norm", "sparsity",
                                  "sparse_method", "sparse_scope", "sparse_index", "batch_size",
                                  "microbatch", "max_tokens", "microbatch_tokens",
                                  "sentence_length", "conv_impl", "loss_chunk", "checkpoint"}));
}

}  // namespace memfloor
