// Adam against the formula in double, against PyTorch, and against itself with 16-bit state.
#include "core/philox.h"
#include "tests/op_testing.h"
#include "tests/reference_net.h"

namespace memfloor::testing {
namespace {

constexpr AdamRule kRule{.beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-8f, .weight_decay = 0.1f};

float state_scale(Dtype dtype) { return dtype == Dtype::f16 ? kAdamStateScale : 1; }

// Weights and state of a run, and what an update is given.
struct AdamRun {
  AdamRun(const Floats& w, Dtype weight, Dtype state, bool with_master = false,
          std::shared_ptr<Backend> with = backend())
      : weight_dtype(weight),
        state_dtype(state),
        weights(w, weight),
        m(Floats(w.size()), state),
        second(Floats(w.size()), state),
        master(w),
        device(std::move(with)) {
    arrays.elements = static_cast<std::int64_t>(w.size());
    arrays.weight_dtype = weight, arrays.state_dtype = state;
    arrays.weights = weights.data();
    arrays.state = {m.data(), second.data()};
    if (with_master) arrays.master = master.data();
  }
  void update(const AdamRule& rule, const UpdateStep& step, const Floats& gradient,
              Dtype gradient_dtype = Dtype::f32) {
    const Buffer stored(gradient, gradient_dtype);
    arrays.gradient = stored.data(), arrays.gradient_dtype = gradient_dtype;
    device->tensor_ops().adam(rule, step, arrays);
  }
  Floats new_weights() const { return weights.read(weight_dtype); }

  Dtype weight_dtype, state_dtype;
  Buffer weights, m, second;
  Floats master;
  std::shared_ptr<Backend> device;
  UpdateArrays arrays;
};

// ---- the formula

TEST(Adam, IsTheFormulaRoundedOnce) {
  constexpr std::int64_t kCount = 20001, kNumber = 6;  // more than one piece, and a rest
  constexpr float kScale = 64, kRate = 0.01f;
  const double t = kNumber + 1;
  const double step =
      kRate * std::sqrt(1 - std::pow(kRule.beta2, t)) / (1 - std::pow(kRule.beta1, t));
  for (const Dtype weight : {Dtype::f32, Dtype::f16, Dtype::bf16})
    for (const Dtype gradient : {Dtype::f32, Dtype::f16, Dtype::bf16})
      for (const Dtype state : {Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const bool master : {false, true})
          for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
            if (master && weight == Dtype::f32) continue;
            SCOPED_TRACE(concat(name_of(weight), ' ', name_of(gradient), ' ', name_of(state),
                                master ? " master" : ""));
            const Floats unrounded = numbers(kCount, 1);
            const Floats w = master ? unrounded : rounded(unrounded, weight);
            const Floats g = rounded(numbers(kCount, 3, kScale), gradient);
            const float scale = state_scale(state);
            const Floats m = rounded(numbers(kCount, 2, scale), state);
            Floats second = rounded(numbers(kCount, 4, scale), state);
            for (float& v : second) v = std::abs(v);
            AdamRun run(unrounded, weight, state, master);
            from_f32(m.data(), state, run.m.data(), kCount);
            from_f32(second.data(), state, run.second.data(), kCount);
            run.arrays.rounding = rounding;
            run.update(kRule, {.learning_rate = kRate, .gradient_scale = kScale, .number = kNumber},
                       g, gradient);

            const Floats new_w = run.new_weights(), new_m = run.m.read(state),
                         new_second = run.second.read(state);
            // Rounding to nearest errs by one unit at most, stochastic by less than two.
            const double units = rounding == Rounding::nearest ? 1 : 2, f32 = 4e-7;
            for (std::size_t i = 0; i < w.size(); ++i) {
              const double d = g[i] / kScale, s = second[i] / scale;
              const double before = state == Dtype::f32 ? s : s * s;
              const double a = kRule.beta1 * (m[i] / scale) + (1.0 - kRule.beta1) * d;
              const double v = kRule.beta2 * before + (1.0 - kRule.beta2) * d * d;
              const double b = state == Dtype::f32 ? v : std::sqrt(v);
              const double moved = w[i] - kRate * kRule.weight_decay * w[i] -
                                   step * a / (std::sqrt(v) + kRule.epsilon);
              ASSERT_NEAR(new_m[i] / scale, a, units * unit_of(state) * std::abs(a) + f32);
              ASSERT_NEAR(new_second[i] / scale, b, units * unit_of(state) * b + f32);
              ASSERT_NEAR(new_w[i], moved, units * unit_of(weight) * std::abs(moved) + f32);
              if (master) {
                ASSERT_NEAR(run.master[i], moved, f32);
              }
            }
          }
}

TEST(Adam, IsPyTorchs) {
  for (const char* size : {"large.", "small.", "tiny."}) {
    const Dump dump("adam", size);
    const Floats w = dump.input("weight"), all = dump.input("gradients");
    const std::size_t updates = all.size() / w.size();
    AdamRun run(w, Dtype::f32, Dtype::f32);
    for (std::size_t t = 0; t < updates; ++t) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(t * w.size());
      run.update(kRule, {.learning_rate = 1e-3f, .number = static_cast<std::int64_t>(t)},
                 {first, first + static_cast<std::ptrdiff_t>(w.size())});
    }
    EXPECT_LE(dump.answer("weight.after").distance_of(run.new_weights()), 1e-6) << size;
    EXPECT_LE(dump.answer("m").distance_of(run.m.read()), 1e-6) << size;
    EXPECT_LE(dump.answer("v").distance_of(run.second.read()), 1e-6) << size;
  }
}

TEST(Adam, WithoutGradientOnlyDecays) {
  const Floats w = numbers(3000, 1), zero(w.size());
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      AdamRun still(w, dtype, dtype), decayed(w, dtype, dtype);
      still.arrays.rounding = decayed.arrays.rounding = rounding;
      AdamRule rule = kRule;
      decayed.update(rule, {.learning_rate = 0.5f}, zero);
      rule.weight_decay = 0;
      still.update(rule, {.learning_rate = 0.5f}, zero);
      EXPECT_EQ(still.new_weights(), rounded(w, dtype));
      const Floats after = decayed.new_weights(), before = rounded(w, dtype);
      for (std::size_t i = 0; i < w.size(); ++i)
        ASSERT_NEAR(after[i], 0.95f * before[i], 2 * unit_of(dtype) * std::abs(before[i]));
      for (const AdamRun* run : {&still, &decayed}) {
        EXPECT_EQ(run->m.read(dtype), zero);
        EXPECT_EQ(run->second.read(dtype), zero);
      }
    }
}

// ---- state in 16 bits

// Where weights go that minimise a noisy quadratic, curvature / 2 * (w - target)^2 each: the noise
// is as large as the distance at the start.
Floats minimized_quadratic(float curvature, Dtype state, Rounding rounding) {
  constexpr std::int64_t kCount = 256;
  constexpr int kUpdates = 1000;
  const Floats target = numbers(kCount, 1);
  AdamRun run(Floats(kCount), Dtype::f32, state);
  run.arrays.rounding = rounding;
  AdamRule rule = kRule;
  rule.weight_decay = 0;
  Floats gradient(kCount);
  for (int t = 0; t < kUpdates; ++t) {
    const Floats w = run.new_weights();
    const Floats noise = numbers(kCount, 100 + static_cast<std::uint32_t>(t));
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = curvature * (w[i] - target[i] + noise[i]);
    run.update(rule, {.learning_rate = 2e-3f, .seed = 5, .number = t}, gradient);
  }
  return run.new_weights();
}

// Over 1,000 updates the weights move by 0.56 (root of the mean square); 16-bit state keeps them
// within 0.001 of FP32's, gradients of 10^-6 included. A second moment that FP16 stored as a
// square, (10^-6)^2 (1 - beta2), would be 0 even times kAdamStateScale, and the weights would jump
// by rate * m / epsilon, tens of times their size.
TEST(Adam, StateInHalfPrecisionTracksFp32) {
  EXPECT_EQ(static_cast<float>(F16(1e-12f * (1 - kRule.beta2) * kAdamStateScale)), 0);
  for (const float curvature : {1.0f, 1e-3f, 1e-6f}) {
    const Floats expected = minimized_quadratic(curvature, Dtype::f32, Rounding::nearest);
    for (const Dtype state : {Dtype::f16, Dtype::bf16}) {
      const Floats w = minimized_quadratic(curvature, state, Rounding::stochastic);
      double squares = 0;
      for (std::size_t i = 0; i < w.size(); ++i)
        squares += std::pow(static_cast<double>(w[i]) - expected[i], 2);
      EXPECT_LE(std::sqrt(squares / static_cast<double>(w.size())), 0.001)
          << name_of(state) << ' ' << curvature;
    }
  }
}

TEST(Adam, StateInFp16Saturates) {
  AdamRun run(Floats(40), Dtype::f32, Dtype::f16);
  run.update(kRule, {.learning_rate = 1}, Floats(40, -1e6f));
  EXPECT_EQ(run.m.read(Dtype::f16), Floats(40, -65504));
  EXPECT_EQ(run.second.read(Dtype::f16), Floats(40, 65504));
  for (const float w : run.new_weights()) EXPECT_NEAR(w, 1, 1e-5);
}

// Weights, m and the root round by numbers of their own.
TEST(Adam, DrawsArePhiloxNumbers) {
  constexpr std::uint32_t kCount = 4000, kSeed = 5, kUpdate = 11, kStream = 17;
  Floats g = numbers(kCount, 1);
  for (float& v : g) v = 0.5f + 0.25f * v;  // positive: m and the root are equal
  AdamRun run(Floats(kCount), Dtype::f32, Dtype::bf16);
  run.arrays.rounding = Rounding::stochastic, run.arrays.stream = kStream;
  run.update({.beta1 = 0, .beta2 = 0}, {.learning_rate = 1, .seed = kSeed, .number = kUpdate}, g);
  const auto* m = static_cast<const std::uint16_t*>(run.m.data());
  const auto* root = static_cast<const std::uint16_t*>(run.second.data());
  const Philox philox(kSeed, Purpose::stochastic_rounding);
  std::uint32_t unequal = 0;
  for (std::uint32_t e = 0; e < kCount; ++e) {
    const std::uint32_t word = philox({kUpdate, e / 128 * 16 + e % 16, 1, kStream})[e % 128 / 32];
    const std::uint32_t random = e / 16 % 2 == 0 ? word & 0xffff : word >> 16;
    ASSERT_EQ(m[e], (std::bit_cast<std::uint32_t>(g[e]) + random) >> 16) << e;
    unequal += m[e] != root[e];
  }
  EXPECT_GE(unequal, kCount / 5);
}

TEST(Adam, ThreadsChangeNoBit) {
  constexpr std::int64_t kCount = 50001;
  const auto bits = [&](int threads) {
    AdamRun run(numbers(kCount, 1), Dtype::bf16, Dtype::f16, false, make_cpu_backend(threads));
    run.arrays.rounding = Rounding::stochastic;
    for (int t = 0; t < 3; ++t)
      run.update(kRule, {.learning_rate = 0.01f, .seed = 3, .number = t},
                 numbers(kCount, 10 + static_cast<std::uint32_t>(t)));
    return run.weights.bytes(0, 2 * kCount) + run.m.bytes(0, 2 * kCount) +
           run.second.bytes(0, 2 * kCount);
  };
  const std::string one = bits(1);
  EXPECT_EQ(bits(2), one);
  EXPECT_EQ(bits(3), one);
}

}  // namespace
}  // namespace memfloor::testing
