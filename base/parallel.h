// Divides a range of work over a few short-lived threads. For offline work on large inputs; the
// agent in a trainer's process uses none of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace plumbline {

// The largest sample that a live probe sends: a larger one was read from a file, by one of our own
// processes.
inline constexpr uint64_t kLargestLiveSample = uint64_t{8} << 20;

// Returns the number of threads for an input of this number of bytes.
inline int ThreadsFor(uint64_t bytes) {
  if (bytes <= kLargestLiveSample) return 1;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

// Calls f(part, first, last) for `parts` contiguous parts of [0, count), part 0 on the caller's
// thread; returns when all are done. f must not throw.
template <typename F>
void ParallelParts(int64_t count, int parts, F f) {
  const auto run = [&](int part) { f(part, count * part / parts, count * (part + 1) / parts); };
  std::vector<std::thread> workers;
  workers.reserve(static_cast<size_t>(parts));
  for (int part = 1; part < parts; ++part) {
    try {
      workers.emplace_back(run, part);
    } catch (const std::system_error&) {  // no thread is available
      run(part);
    }
  }
  run(0);
  for (std::thread& worker : workers) worker.join();
}

// Calls f(0) .. f(count - 1), each once, on up to `threads` threads that take the next index when
// they are free; returns when all are done. f must not throw.
template <typename F>
void ParallelTasks(size_t count, int threads, F f) {
  std::atomic<size_t> next = 0;
  ParallelParts(threads, threads, [&](int, int64_t, int64_t) {
    for (size_t i = next++; i < count; i = next++) f(i);
  });
}

}  // namespace plumbline
