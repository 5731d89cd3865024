// A step takes its memory from the ledger and from nowhere else: this program's allocation
// functions are replaced by ones that note the largest request while somebody watches.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/reference_net.h"

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
#define MEMFLOOR_WATCHES_ALLOCATIONS 0  // the sanitizer has these functions to itself
#else
#define MEMFLOOR_WATCHES_ALLOCATIONS 1
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#endif

namespace {

std::atomic<bool> watching{false};
std::atomic<std::size_t> largest_request{0};

}  // namespace

#if MEMFLOOR_WATCHES_ALLOCATIONS

static void note(std::size_t bytes) noexcept {
  if (!watching.load(std::memory_order_relaxed)) return;
  std::size_t largest = largest_request.load(std::memory_order_relaxed);
  while (bytes > largest && !largest_request.compare_exchange_weak(largest, bytes)) {
  }
}

// glibc's own entry points; operator new and every library come here through the symbols below.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) noexcept {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, std::size_t bytes) noexcept {
  note(bytes);
  return __libc_realloc(data, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return memalign(alignment, bytes);
}
int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) noexcept {
  void* const result = memalign(alignment, bytes);
  if (!result) return ENOMEM;
  *data = result;
  return 0;
}
void* mmap(void* at, std::size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  note(bytes);
  // NOLINTNEXTLINE: the kernel gives an address or an error as a number
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
void* mmap64(void* at, std::size_t bytes, int protection, int flags, int file,
             off_t offset) noexcept {
  return mmap(at, bytes, protection, flags, file, offset);
}
}

#endif

namespace memfloor::testing {
namespace {

constexpr std::size_t kLimit = 64 << 10;

// The largest request that any thread makes while `body` runs.
template <class Body>
std::size_t largest_request_of(Body&& body) {
  largest_request = 0;
  watching = true;
  body();
  watching = false;
  return largest_request;
}

// Keeps the optimiser from removing an allocation that nobody uses.
void use(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

class Allocation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MEMFLOOR_WATCHES_ALLOCATIONS)
      GTEST_SKIP() << "allocation functions are not ours to replace in this build (sanitizer, or "
                      "not glibc)";
  }
};

// Without this, the tests below could pass because nothing is seen.
TEST_F(Allocation, EveryWayIsSeen) {
  constexpr std::size_t kBytes = 100000;
  EXPECT_GE(largest_request_of([] { use(std::make_unique<char[]>(kBytes).get()); }), kBytes);
  EXPECT_GE(largest_request_of([] {
              void* data = std::calloc(kBytes, 1);
              use(data);
              std::free(data);
            }),
            kBytes);
  EXPECT_GE(largest_request_of([] {
              void* data = std::realloc(std::malloc(1), kBytes);
              use(data);
              std::free(data);
            }),
            kBytes);
  EXPECT_GE(largest_request_of([] {
              void* data = std::aligned_alloc(64, 64 * kBytes);
              use(data);
              std::free(data);
            }),
            kBytes);
  EXPECT_GE(largest_request_of([] {
              void* data = nullptr;
              use(posix_memalign(&data, 64, kBytes) == 0 ? data : nullptr);
              std::free(data);
            }),
            kBytes);
  EXPECT_GE(largest_request_of(
                [] { std::thread([] { use(std::make_unique<char[]>(kBytes).get()); }).join(); }),
            kBytes);
#if MEMFLOOR_WATCHES_ALLOCATIONS
  EXPECT_GE(largest_request_of([] {
              void* data = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              ASSERT_NE(data, MAP_FAILED);
              munmap(data, kBytes);
            }),
            kBytes);
#endif
  EXPECT_LE(largest_request_of([] { use(std::make_unique<char[]>(100).get()); }), 1000u);
}

TEST_F(Allocation, NothingLargeWhereWeightsAreSparse) {
  for (const char* index : {"bitmap", "csr16"}) {
    RunSpec spec;
    spec.threads = 2, spec.batch_size = 4;
    spec.sparsity = 0.8, spec.sparse_index = index;
    const Session session = open_session(spec);
    Trainer& trainer = *session.trainer;
    trainer.train({0, 0, 0, 4}, 0.1f);
    const std::size_t largest = largest_request_of([&] {
      trainer.train({1, 0, 4, 4}, 0.1f);
      trainer.move_pattern();
    });
    EXPECT_LE(largest, kLimit) << index;
  }
}

TEST_F(Allocation, NothingLargeOutsideTheLedger) {
  for (const char* precision : {"fp32", "bf16_mixed", "fp16", "bf16_master"})
    for (const int threads : {1, 2}) {
      RunSpec spec;
      spec.precision = precision, spec.threads = threads;
      spec.batch_size = 20, spec.microbatch = 7;
      const Session session = open_session(spec);
      Trainer& trainer = *session.trainer;
      trainer.train({0, 0, 0, 20}, 0.1f);
      trainer.evaluate({0, 7});
      const std::size_t training = largest_request_of([&] { trainer.train({1, 0, 20, 20}, 0.1f); });
      const std::size_t evaluation = largest_request_of([&] { trainer.evaluate({7, 7}); });
      EXPECT_LE(training, kLimit) << precision << ", " << threads << " threads";
      EXPECT_LE(evaluation, kLimit) << precision << ", " << threads << " threads";
      std::printf("  %s, %d threads: at most %zu bytes in a step, %zu in an evaluation\n",
                  precision, threads, training, evaluation);
    }
}

}  // namespace
}  // namespace memfloor::testing
