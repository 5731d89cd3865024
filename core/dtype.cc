#include "core/dtype.h"

namespace memfloor {

const char* name_of(Dtype dtype) {
  return with_dtype(dtype, [](auto element) {
    constexpr const char* kNames[] = {"f32", "f16", "bf16"};
    return kNames[static_cast<int>(dtype_of<decltype(element)>)];
  });
}

}  // namespace memfloor
