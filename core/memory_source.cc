#include "core/memory_source.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "core/error.h"
#include "core/poison.h"

namespace memfloor {
namespace {

class NoMemory final : public MemorySource {
 public:
  void begin_phase(std::string_view) override {}
  void end_phase() noexcept override {}
  void* place(std::int64_t) override { return nullptr; }
  void release(void*, std::int64_t) noexcept override {}
  std::int64_t reserved_bytes() const override { return 0; }
};

class HeapMemory final : public MemorySource {
 public:
  void begin_phase(std::string_view) override {}
  void end_phase() noexcept override {}
  void* place(std::int64_t bytes) override {
    void* data = std::aligned_alloc(
        kAlignment, static_cast<std::size_t>(aligned(std::max<std::int64_t>(bytes, 1))));
    if (!data) throw std::bad_alloc();
    held_ += aligned(bytes);
    fill_with_garbage(data, bytes);
    return data;
  }
  void release(void* data, std::int64_t bytes) noexcept override {
    fill_with_garbage(data, bytes);
    held_ -= aligned(bytes);
    std::free(data);
  }
  std::int64_t reserved_bytes() const override { return held_; }

 private:
  std::int64_t held_ = 0;
};

}  // namespace

std::unique_ptr<MemorySource> no_memory() { return std::make_unique<NoMemory>(); }
std::unique_ptr<MemorySource> heap_memory() { return std::make_unique<HeapMemory>(); }

}  // namespace memfloor
