// Attention: every sentence and head alone, as products of small matrices.
#include "backends/attention.h"

#include <cmath>

#include "backends/cpu/convert.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/dropout.h"
#include "backends/cpu/rows.h"
#include "backends/cpu/small_products.h"
#include "backends/cpu/softmax.h"
#include "core/ledger.h"

namespace memfloor::cpu {
namespace {

class CpuAttention final : public Attention {
 public:
  CpuAttention(const AttentionDescriptor& d, ThreadPool& pool)
      : Attention(d), pool_(pool), width_(d.channels / d.heads) {
    MEMFLOOR_CHECK(d.channels % d.heads == 0, d.channels, " channels are not ", d.heads,
                   " equal heads");
    scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(width_)));
  }

  std::int64_t forward_scratch(const Sequences& queries, const Sequences& keys) const override {
    return offset_bytes(queries) + pool_.threads() * thread_bytes(queries, keys);
  }
  std::int64_t backward_scratch(const Sequences& queries, const Sequences& keys) const override {
    return forward_scratch(queries, keys);
  }

  void forward(const Sequences& queries, const Sequences& keys, const Dropout& dropout,
               const void* q, const void* k, const void* v, void* probabilities, void* y,
               void* scratch) const override {
    const DropoutMasks masks(dropout);
    for_heads(queries, keys, scratch, [&](auto element, const Head& head) {
      using T = decltype(element);
      const auto [query, key, value] = views<const T>(head, q, k, v);
      T* kept = static_cast<T*>(probabilities) + head.probabilities;
      const auto packed_key = packed(key, head.sources, width_, head.operand);
      for (std::int64_t t = 0; t < head.targets; ++t) {
        float* row = head.matrix + t * head.sources;
        multiply_transposed(head.sources, width_, query.at(t, 0), packed_key, scale_, row);
        softmax_row(row, head.sources);
        narrow(row, d_.dtype, kept + t * head.sources, head.sources);
        drop(masks, head, t);
      }
      multiply(head.targets, width_, head.sources, matrix(head),
               packed(value, head.sources, width_, head.operand),
               view(static_cast<T*>(y), head.first_target, head.column));
    });
  }

  // With dropped probabilities P' = P * factors: dV = P'^T dY, dP' = dY V^T, and the gradient of
  // the scores is P' dP' - P sum(P' dP'), summed over the sources.
  void backward(const Sequences& queries, const Sequences& keys, const Dropout& dropout,
                const void* q, const void* k, const void* v, const void* probabilities,
                const void* dy, void* dq, void* dk, void* dv, void* scratch) const override {
    const DropoutMasks masks(dropout);
    for_heads(queries, keys, scratch, [&](auto element, const Head& head) {
      using T = decltype(element);
      const auto [query, key, value] = views<const T>(head, q, k, v);
      const auto [dquery, dkey, dvalue] = views<T>(head, dq, dk, dv);
      const auto gradient = view(static_cast<const T*>(dy), head.first_target, head.column);
      const T* kept = static_cast<const T*>(probabilities) + head.probabilities;
      widen(kept, d_.dtype, head.matrix, head.targets * head.sources);
      for (std::int64_t t = 0; t < head.targets; ++t) drop(masks, head, t);
      multiply(head.sources, width_, head.targets, transposed(head),
               packed(gradient, head.targets, width_, head.operand), dvalue);
      const auto packed_value = packed(value, head.sources, width_, head.operand);
      for (std::int64_t t = 0; t < head.targets; ++t) {
        multiply_transposed(head.sources, width_, gradient.at(t, 0), packed_value, 1.0f, head.row);
        score_gradient(kept + t * head.sources, head.row, head.sources,
                       head.matrix + t * head.sources);
      }
      multiply(head.sources, width_, head.targets, transposed(head),
               packed(query, head.targets, width_, head.operand), dkey);
      multiply(head.targets, width_, head.sources, matrix(head),
               packed(key, head.sources, width_, head.operand), dquery);
    });
  }

 private:
  // One sentence pair and head.
  struct Head {
    std::int64_t sentence, first_target, first_source, targets, sources;
    std::int64_t number, column;  // of the head; its first channel
    std::int64_t probabilities;   // where they begin
    // Scratch of a thread: (targets, sources), what is dropped and its gradient; (sources); an
    // operand of a product, packed.
    float *matrix, *row, *operand;
  };
  static MatrixView<const float> matrix(const Head& head) { return {head.matrix, head.sources}; }
  static MatrixView<const float> transposed(const Head& head) {
    return {head.matrix, 1, head.sources};
  }

  std::int64_t offset_bytes(const Sequences& queries) const {
    return aligned(queries.count() * static_cast<std::int64_t>(sizeof(std::int64_t)));
  }
  std::int64_t thread_bytes(const Sequences& queries, const Sequences& keys) const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < queries.count(); ++i) {
      const std::int64_t targets = queries.length(i), sources = keys.length(i);
      most = std::max(most, (targets + 1) * sources + std::max(targets, sources) * width_);
    }
    return aligned(most * 4);
  }

  // body(an element of the stored type, head) for all, in parallel.
  template <class Body>
  void for_heads(const Sequences& queries, const Sequences& keys, void* scratch,
                 Body&& body) const {
    MEMFLOOR_CHECK(queries.count() == keys.count(), queries.count(), " sentences attend to ",
                   keys.count());
    auto* offsets = static_cast<std::int64_t*>(scratch);
    for (std::int64_t i = 0, sum = 0; i < queries.count(); ++i) {
      offsets[i] = sum;
      sum += d_.heads * queries.length(i) * keys.length(i);
    }
    void* of_threads = static_cast<char*>(scratch) + offset_bytes(queries);
    const std::int64_t bytes = thread_bytes(queries, keys);
    with_dtype(d_.dtype, [&](auto element) {
      pool_.parallel_for(queries.count() * d_.heads, [&](std::int64_t slice, int thread) {
        const std::int64_t i = slice / d_.heads, number = slice % d_.heads;
        const std::int64_t targets = queries.length(i), sources = keys.length(i);
        float* row = thread_scratch(of_threads, thread, bytes);
        float* matrix = row + sources;
        body(element, Head{i, queries.first_row[i], keys.first_row[i], targets, sources, number,
                           number * width_, offsets[i] + number * targets * sources, matrix, row,
                           matrix + targets * sources});
      });
    });
  }

  template <class T>
  MatrixView<T> view(T* data, std::int64_t first_row, std::int64_t column) const {
    return {data + first_row * d_.channels + column, d_.channels};
  }
  // Of a head of q, k, v or of their gradients.
  template <class T>
  std::array<MatrixView<T>, 3> views(const Head& head, auto* q, auto* k, auto* v) const {
    return {view(static_cast<T*>(q), head.first_target, head.column),
            view(static_cast<T*>(k), head.first_source, head.column),
            view(static_cast<T*>(v), head.first_source, head.column)};
  }

  // Drops probabilities of a target, in their row of the matrix.
  static void drop(const DropoutMasks& masks, const Head& head, std::int64_t target) {
    masks.factors(head.sentence, target, head.number * head.sources, head.sources, head.row);
    map_elements(head.row, head.matrix + target * head.sources, head.sources,
                 [](Lanes f, Lanes p) { return p * f; });
  }

  // dropped (sources) becomes the gradient of the scaled scores' product.
  template <class T>
  void score_gradient(const T* probabilities, const float* gradient, std::int64_t sources,
                      float* dropped) const {
    Lanes products{};
    for_lanes(sources, [&](std::int64_t s, auto width) {
      products += load(dropped + s, width) * load(gradient + s, width);
    });
    const Lanes mean = broadcast(sum(products));
    for_lanes(sources, [&](std::int64_t s, auto width) {
      const Lanes product = load(dropped + s, width) * load(gradient + s, width);
      store(dropped + s, (product - load(probabilities + s, width) * mean) * scale_, width);
    });
  }

  ThreadPool& pool_;
  const std::int64_t width_;  // channels of a head
  float scale_ = 1;
};

}  // namespace

std::unique_ptr<Attention> make_attention(const AttentionDescriptor& descriptor, ThreadPool& pool) {
  return std::make_unique<CpuAttention>(descriptor, pool);
}

}  // namespace memfloor::cpu
