// The PyTorch answers of tests/data beside a network of ours that starts from the same numbers.
// All comparisons happen in PyTorch's order (OIHW, NCHW); the conversions are here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "suite/image_task.h"
#include "suite/session.h"
#include "tests/torch_reference.h"

namespace memfloor::testing {

/// One answer: float64 values, at the stored elements, and how far PyTorch's float32 lies from
/// them.
struct Answer {
  std::vector<double> values;
  std::int64_t elements = 0;  // of the whole tensor
  double torch_distance = 0;  // |f32 - f64| / |f64|, L2 over the stored elements

  /// The same distance for `whole`, a tensor in PyTorch's order.
  double distance_of(const std::vector<float>& whole) const;
  /// The largest difference, in units of the largest magnitude of the answer.
  double largest_difference(const std::vector<float>& whole) const;
};

/// A file of tests/data, or the tensors of it whose names begin with `prefix`.
class Dump {
 public:
  explicit Dump(const std::string& file, std::string prefix = "");

  /// A parameter, running statistic, or input, in PyTorch's order.
  std::vector<float> input(const std::string& name) const;
  std::vector<std::int64_t> shape(const std::string& name) const;
  /// `elements` of the whole tensor where it is stored as a sample, else taken from the file.
  Answer answer(const std::string& name, std::int64_t elements = 0) const;
  std::vector<double> doubles(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;
  std::vector<std::int32_t> labels(const std::string& name = "labels") const;

 private:
  SafetensorsFile file_;
  std::string prefix_;
};

/// (n, c, pixels) -> (n, pixels, c) and back; an OIHW weight becomes OHWI by the same swap.
std::vector<float> channels_last(const std::vector<float>& values, std::int64_t n, std::int64_t c);
std::vector<float> channels_first(const std::vector<float>& values, std::int64_t n, std::int64_t c);

/// Writes every parameter and running statistic that the dump has.
void load_start(const Dump& dump, ParameterStore& parameters, RunningStatistics& running);

/// In PyTorch's order: a parameter's weight or gradient; a running statistic by its PyTorch name
/// ("bn.running_mean"), as committed.
std::vector<float> weight_of(const ParameterStore& parameters, int handle);
std::vector<float> gradient_of(const ParameterStore& parameters, int handle);
std::vector<float> running_of(RunningStatistics& running, const std::string& name);
/// The names of all running statistics.
std::vector<std::string> running_names(const RunningStatistics& running);

/// A trainer on the heap that starts where the dump's network does.
struct ReferenceNet {
  ReferenceNet(const Dump& dump, const std::string& model, int image_pixels,
               const std::string& precision = "fp32", int threads = 2);

  /// images: (n, 3, h, w). Gradients stay in the store, running statistics are committed.
  Totals forward_backward(const std::vector<float>& images,
                          const std::vector<std::int32_t>& labels);
  /// Logits in evaluation mode.
  std::vector<float> evaluate(const std::vector<float>& images);

  std::unique_ptr<ImageTask> task;
  WideResNetConfig config;
  std::shared_ptr<Backend> backend;
  std::unique_ptr<Trainer> trainer;
  std::vector<float> logits;  // of the last forward_backward
};

/// Logits (count, classes) and loss of given images (count, h, w, c), in training mode without an
/// update; gradients stay in the store.
Totals forward_backward_images(Trainer& trainer, const float* images, const std::int32_t* labels,
                               std::int64_t count, float* logits);

/// A session like open_session()'s, but with `train` and `test` synthetic images of 16 x 16 pixels.
Session small_session(const RunSpec& spec, std::int64_t train, std::int64_t test);

/// wrn10_1, batch 20, cut into 7 + 7 + 6, augmented, at a constant learning rate.
RunSpec small_spec(const std::string& precision, int threads);

/// The bytes of every tensor that a snapshot holds: weights, optimizer state, running statistics.
std::string state_bytes(Trainer& trainer);

}  // namespace memfloor::testing
