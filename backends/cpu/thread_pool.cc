#include "backends/cpu/thread_pool.h"

#include <immintrin.h>
#include <omp.h>

#include "core/error.h"

namespace memfloor::cpu {
namespace {

// About 20 microseconds: longer than the gap between two ops of a step, far shorter than a time
// slice.
constexpr int kSpins = 500;

// Waits until `value` differs from `old`: spins briefly, then sleeps.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

// oneDNN asks OpenMP for the number of threads, which is a property of the calling thread.
void make_libraries_single_threaded() { omp_set_num_threads(1); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  MEMFLOOR_CHECK(threads >= 1, "a thread pool needs at least one thread, got ", threads);
  make_libraries_single_threaded();
  for (int thread = 1; thread < threads; ++thread)
    workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, Call call, void* context) {
  if (count <= 0) return;
  call_ = call, context_ = context, count_ = count;
  next_.store(0, std::memory_order_relaxed);
  if (workers_.empty() || count == 1) return drain(0);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain(0);
  for (int busy; (busy = busy_.load(std::memory_order_acquire)) != 0;) wait_for_change(busy_, busy);
}

void ThreadPool::drain(int thread) {
  for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;)
    call_(context_, i, thread);
}

void ThreadPool::work(int thread) {
  make_libraries_single_threaded();
  std::uint32_t seen = 0;
  for (;;) {
    wait_for_change(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    drain(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace memfloor::cpu
