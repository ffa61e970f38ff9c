// State shared by the fake device's two sides: its table (fake_device.cc) and its control
// (fake_control.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/device/fake_device.h"

namespace plumbline::fake {

struct Failure {
  int after = 0;
  int32_t status = kDeviceFailed;
  bool for_good = false;
};

struct Event {
  uint64_t recorded = 0;  // number of times
  uint64_t passed = 0;
};

struct Timer {
  uint64_t mark[2] = {0, 0};
  bool passed[2] = {true, true};
};

struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

// One piece of a stream's work, and the memory that it uses.
struct Work {
  std::function<void()> run;
  std::vector<const void*> touches;
  std::shared_ptr<void> graph;  // the graph of this work, kept until it is done
  std::function<void(uint64_t)> of_replay =
      {};  // for a graph's work: `run` with the replay's number
};

struct Fake {
  std::mutex mutex;
  bool holding = false;
  int looks_until_release = 0;  // 0: unchanged
  std::map<void*, std::deque<Work>> streams;
  uint64_t clock_ns = 0;  // each piece of work takes one microsecond
  std::map<void*, std::vector<std::function<void()>>> marks;  // before a stream's next work
  std::map<std::string, uint64_t> calls;
  std::map<std::string, Failure> failures;
  std::set<void*> capturing;
  std::map<void*, uint64_t> captures;  // the last of each stream
  uint64_t last_capture = 0, last_replay = 0;
  std::map<void*, std::vector<Work>> graphs;  // by the stream on which they were captured
  std::map<void*, std::vector<std::shared_ptr<void>>> watched;  // the same; each reports its end
  std::set<void*> of_graphs;                                    // memory that graphs may use
  std::set<void*> devices, memory, events, timers;
  std::map<void*, Range> pinned;
  std::map<const void*, void*> workspace_stream;  // of pending work
  uint64_t faults = 0;

  void Fault(const char* text) {
    ++faults;
    std::fprintf(stderr, "fake device: %s\n", text);
  }

  bool Touched(const void* what) {
    for (const auto& [stream, queue] : streams) {
      for (const Work& w : queue) {
        for (const void* t : w.touches) {
          if (t == what) return true;
        }
      }
    }
    return false;
  }

  bool Pinned(const void* begin, size_t bytes) {
    const auto* b = static_cast<const std::byte*>(begin);
    for (const auto& [pages, range] : pinned) {
      if (b >= range.begin && b + bytes <= range.end) return true;
    }
    return false;
  }

  void Enqueue(void* stream, Work work) {
    if (capturing.contains(stream)) Fault("work was enqueued on a stream that is being captured");
    // A mark is not work. It is passed directly before the next piece of work.
    if (auto before = std::exchange(marks[stream], {}); !before.empty()) {
      work.run = [before = std::move(before), run = std::move(work.run)] {
        for (const auto& mark : before) mark();
        run();
      };
    }
    streams[stream].push_back(std::move(work));
    if (!holding) Run(stream, -1);
  }

  void Release() {
    holding = false;
    for (auto& [stream, queue] : streams) Run(stream, -1);
  }

  void Run(void* stream, int most) {
    std::deque<Work>& queue = streams[stream];
    for (; most != 0 && !queue.empty(); --most) {
      queue.front().run();
      clock_ns += 1000;
      queue.pop_front();
    }
  }
};

// Counts the call of the table. Returns its status if it must fail.
int32_t Enter(Fake& f, const char* name, DeviceError* error);

// Never freed: it is used when the process ends.
Fake& TheFake();

}  // namespace plumbline::fake
