// Global average pooling, the linear layer (Eigen) and softmax cross-entropy, all in f32.
#include <Eigen/Core>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/lanes.h"

namespace memfloor::cpu {
namespace {

class CpuGlobalAveragePool final : public GlobalAveragePool {
 public:
  CpuGlobalAveragePool(const GlobalAveragePoolDescriptor& d, ThreadPool& pool)
      : d_(d), pool_(pool) {}

  void forward(const void* x, float* y) const override {
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(d_.images, [&](std::int64_t n, int) {
        const T* image = static_cast<const T*>(x) + n * pixels() * d_.channels;
        float* mean = y + n * d_.channels;
        std::fill(mean, mean + d_.channels, 0.0f);
        for (std::int64_t p = 0; p < pixels(); ++p)
          for (std::int64_t c = 0; c < d_.channels; ++c)
            mean[c] += static_cast<float>(image[p * d_.channels + c]);
        for (std::int64_t c = 0; c < d_.channels; ++c) mean[c] /= static_cast<float>(pixels());
      });
    });
  }

  void backward(const float* dy, void* dx) const override {
    with_dtype(d_.dtype, [&](auto element) {
      using T = decltype(element);
      pool_.parallel_for(d_.images, [&](std::int64_t n, int) {
        T* image = static_cast<T*>(dx) + n * pixels() * d_.channels;
        for (std::int64_t p = 0; p < pixels(); ++p)
          for (std::int64_t c = 0; c < d_.channels; ++c)
            image[p * d_.channels + c] = T(dy[n * d_.channels + c] / static_cast<float>(pixels()));
      });
    });
  }

 private:
  std::int64_t pixels() const { return d_.height * d_.width; }
  const GlobalAveragePoolDescriptor d_;
  ThreadPool& pool_;
};

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXf;

class CpuLinear final : public Linear {
 public:
  explicit CpuLinear(const LinearDescriptor& d) : d_(d) {}

  // Row by row: a sample's bits must not depend on how many others are computed beside it.
  void forward(const float* x, const float* w, const float* b, float* y) const override {
    const Eigen::Map<const Matrix> weights(w, d_.outputs, d_.inputs);
    const Eigen::Map<const Vector> bias(b, d_.outputs);
    for (std::int64_t r = 0; r < d_.rows; ++r) {
      const Eigen::Map<const Vector> in(x + r * d_.inputs, d_.inputs);
      Eigen::Map<Vector> out(y + r * d_.outputs, d_.outputs);
      out = bias;
      out.noalias() += weights * in;
    }
  }

  void backward_data(const float* dy, const float* w, float* dx) const override {
    const Eigen::Map<const Matrix> weights(w, d_.outputs, d_.inputs);
    for (std::int64_t r = 0; r < d_.rows; ++r) {
      const Eigen::Map<const Vector> gradient(dy + r * d_.outputs, d_.outputs);
      Eigen::Map<Vector>(dx + r * d_.inputs, d_.inputs).noalias() = weights.transpose() * gradient;
    }
  }

  void backward_weights(const float* x, const float* dy, float* dw, float* db) const override {
    const Eigen::Map<const Matrix> in(x, d_.rows, d_.inputs);
    const Eigen::Map<const Matrix> gradient(dy, d_.rows, d_.outputs);
    Eigen::Map<Matrix> weights(dw, d_.outputs, d_.inputs);
    // A sum of outer products, sample by sample: Eigen's matrix product would allocate.
    weights.setZero();
    for (std::int64_t r = 0; r < d_.rows; ++r)
      weights.noalias() += gradient.row(r).transpose().lazyProduct(in.row(r));
    Eigen::Map<Vector>(db, d_.outputs) = gradient.colwise().sum().transpose();
  }

 private:
  const LinearDescriptor d_;
};

class CpuSoftmaxCrossEntropy final : public SoftmaxCrossEntropy {
 public:
  explicit CpuSoftmaxCrossEntropy(const SoftmaxCrossEntropyDescriptor& d) : d_(d) {}

  void forward(const float* logits, const std::int32_t* labels, float* probabilities,
               LossSums* sums) const override {
    for (std::int64_t r = 0; r < d_.rows; ++r) {
      const float* in = logits + r * d_.classes;
      float* out = probabilities + r * d_.classes;
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < d_.classes; ++c)
        if (in[c] > in[best]) best = c;
      double total = 0;
      for (std::int64_t c = 0; c < d_.classes; ++c) {
        const double e = std::exp(static_cast<double>(in[c] - in[best]));
        out[c] = static_cast<float>(e);
        total += e;
      }
      for (std::int64_t c = 0; c < d_.classes; ++c) out[c] = static_cast<float>(out[c] / total);
      sums->loss += std::log(total) - (static_cast<double>(in[labels[r]]) - in[best]);
      sums->correct += best == labels[r];
    }
  }

  void backward(const float* probabilities, const std::int32_t* labels, float scale,
                float* dlogits) const override {
    for (std::int64_t r = 0; r < d_.rows; ++r)
      for (std::int64_t c = 0; c < d_.classes; ++c) {
        const std::int64_t i = r * d_.classes + c;
        dlogits[i] = (probabilities[i] - (c == labels[r] ? 1.0f : 0.0f)) * scale;
      }
  }

 private:
  const SoftmaxCrossEntropyDescriptor d_;
};

}  // namespace

std::unique_ptr<GlobalAveragePool> make_global_average_pool(const GlobalAveragePoolDescriptor& d,
                                                            ThreadPool& pool) {
  return std::make_unique<CpuGlobalAveragePool>(d, pool);
}
std::unique_ptr<Linear> make_linear(const LinearDescriptor& d) {
  return std::make_unique<CpuLinear>(d);
}
std::unique_ptr<SoftmaxCrossEntropy> make_softmax_cross_entropy(
    const SoftmaxCrossEntropyDescriptor& d) {
  return std::make_unique<CpuSoftmaxCrossEntropy>(d);
}

}  // namespace memfloor::cpu
