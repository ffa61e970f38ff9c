// Decides when the next checkpoint is taken, and whether there is anything new for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace plumbline::server {

// Not thread-safe. Time is passed in, so that tests need not wait.
class CheckpointSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Nanos = std::chrono::nanoseconds;
  // The judged position: the number of the last entry and of the last event.
  struct At {
    uint64_t entry = 0;
    uint64_t event = 0;
    bool operator==(const At&) const = default;
  };
  // If runs are in progress for this long after it is due, they begin nothing more.
  static constexpr std::chrono::seconds kPatience{5};
  // Judging is blocked for at most a tenth of the time: after a checkpoint, the next one waits for
  // this multiple of the time that the checkpoint took.
  static constexpr int kRest = 9;

  // A checkpoint is due after `bytes` were judged, or after `interval`, whichever is first.
  CheckpointSchedule(uint64_t bytes, Nanos interval) : bytes_(bytes), interval_(interval) {}

  void Start(Time now) { next_ = now + interval_; }
  void Judged(uint64_t bytes) { judged_ += bytes; }
  // Requests a checkpoint even if nothing is new. Returns false if one was requested already.
  bool Request() { return !std::exchange(requested_, true); }

  // Returns true if a checkpoint is due; then `waiting` is true.
  bool Due(Time now) {
    const bool due = requested_ || judged_ >= bytes_ || now >= next_;
    if (due && !waiting()) since_ = now;
    return due;
  }
  bool waiting() const { return since_ != Time(); }
  bool impatient(Time now) const { return waiting() && now - since_ >= kPatience; }
  // Records that judging was blocked from `begin` to `end` for a checkpoint, taken or not.
  void Done(Time begin, Time end) {
    since_ = {};
    next_ = std::max(begin + interval_, end + kRest * (end - begin));
  }

  bool HasNews(const At& now) const { return requested_ || now != last_; }
  // Records that one was handed in, or read, at this place. Returns true if it was requested.
  bool Taken(const At& at) {
    last_ = at;
    judged_ = 0;
    return std::exchange(requested_, false);
  }

 private:
  const uint64_t bytes_;
  const Nanos interval_;
  uint64_t judged_ = 0;  // bytes, since the last one
  Time next_{};
  Time since_{};  // time since which it is due; the epoch: it is not due
  bool requested_ = false;
  At last_;
};

}  // namespace plumbline::server
