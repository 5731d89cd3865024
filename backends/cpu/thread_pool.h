// Our own parallel_for: work is cut into slices that depend on shapes only, so that results do not
// depend on the number of threads. Which thread runs which slice is left to chance (a busy machine
// then slows one thread, not the step); a slice may therefore only write what is its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace memfloor::cpu {

class ThreadPool {
 public:
  /// Starts threads - 1 workers; the calling thread is the remaining one. threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) for every index in [0, count) and returns when all are done.
  /// `thread` is in [0, threads()) and names per-thread scratch. body must not throw, and must
  /// not call parallel_for of the same pool.
  template <class Body>
  void parallel_for(std::int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count,
        [](void* context, std::int64_t index, int thread) {
          (*static_cast<Plain*>(context))(index, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, std::int64_t index, int thread);
  void run(std::int64_t count, Call call, void* context);
  void work(int thread);
  void drain(int thread);

  std::vector<std::thread> workers_;
  std::atomic<std::uint32_t> generation_{0};  // raised for every run; workers wait on it
  std::atomic<int> busy_{0};                  // workers that have not finished this run
  std::atomic<std::int64_t> next_{0};
  std::int64_t count_ = 0;
  Call call_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
};

}  // namespace memfloor::cpu
