#include "backends/cpu/sgd.h"

#include "backends/cpu/update_chunk.h"

namespace memfloor::cpu {

void sgd_piece(const SgdRule& rule, const UpdateStep& step, const UpdateArrays& arrays,
               std::int64_t begin, std::int64_t count) {
  float weight_buffer[UpdateChunk::kMost], gradient_buffer[UpdateChunk::kMost],
      momentum_buffer[UpdateChunk::kMost];
  for_update_chunks(step, arrays, begin, count, [&](const UpdateChunk& chunk) {
    float* weights = chunk.weights(weight_buffer);
    const float* gradient = chunk.gradient(gradient_buffer);
    float* momentum = chunk.state(0, momentum_buffer);
    for (std::int64_t i = 0; i < chunk.count(); ++i) {
      const float g = gradient[i] + rule.weight_decay * weights[i];
      const float m = rule.momentum * momentum[i] + g;
      momentum[i] = m;
      weights[i] -= step.learning_rate * (rule.nesterov ? g + rule.momentum * m : m);
    }
    chunk.put_weights(weights);
    chunk.put_state(0, momentum);
  });
}

}  // namespace memfloor::cpu
