// A dense tensor: a shape, a dtype and one block from the ledger. Images are NHWC.
#pragma once

#include <string_view>
#include <utility>

#include "core/dtype.h"
#include "core/ledger.h"
#include "core/shape.h"

namespace memfloor {

class Tensor {
 public:
  Tensor() = default;
  /// A shape and a format without memory.
  Tensor(const Shape& shape, Dtype dtype) : shape_(shape), dtype_(dtype) {}
  Tensor(Ledger& ledger, const Shape& shape, Dtype dtype, Category category, std::string_view label)
      : block_(ledger.allocate(bytes_of(shape, dtype), category, label)),
        shape_(shape),
        dtype_(dtype) {}

  static std::int64_t bytes_of(const Shape& shape, Dtype dtype) {
    return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
  }

  const Shape& shape() const { return shape_; }
  Dtype dtype() const { return dtype_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::int64_t bytes() const { return block_.bytes(); }
  void* raw() const { return block_.data(); }
  Block& block() { return block_; }
  explicit operator bool() const { return static_cast<bool>(block_); }

  /// The elements, outermost axis first. The type must be the tensor's dtype.
  template <class T>
  T* data() const {
    MEMFLOOR_CHECK(dtype_of<T> == dtype_, "a tensor of ", name_of(dtype_), " is read as ",
                   name_of(dtype_of<T>));
    return static_cast<T*>(block_.data());
  }

 private:
  Block block_;
  Shape shape_;
  Dtype dtype_ = Dtype::f32;
};

}  // namespace memfloor
