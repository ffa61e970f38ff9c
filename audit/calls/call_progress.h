// Follows the collectives of a job while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace plumbline::audit {

// Looks into the tables of calls once per second, on a thread of its own.
class CallProgress {
 public:
  explicit CallProgress(std::string folder);
  CallProgress(const CallProgress&) = delete;
  CallProgress& operator=(const CallProgress&) = delete;
  ~CallProgress();  // ends the thread

  // Returns how long no collective was called, to a second. Counts from the last change that was
  // seen, or from the beginning.
  double SecondsSinceLast() const;

 private:
  void Run();

  const std::string folder_;
  const int stop_;  // an eventfd
  std::atomic<int64_t> changed_ns_;
  std::thread thread_;
};

}  // namespace plumbline::audit
