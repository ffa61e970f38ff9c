// The child process of one rule file: started, fed, read and stopped within limits of time, memory
// and output. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

struct RuleLimits {
  // Seconds without progress: the child neither reads its input nor, at its end, finishes. The sum
  // of all waits is limited to kWaits times this.
  double seconds = 30;
  static constexpr double kWaits = 20;
  uint64_t memory_mib = 2048;                      // address space of the child
  static constexpr size_t kMostLine = 1 << 18;     // bytes of a line from the child
  static constexpr size_t kMostLines = 200'000;    // lines from the child
  static constexpr size_t kMostPrinted = 1 << 20;  // bytes on its standard error
};

class RuleChild {
 public:
  // Receives a line of the child, without its end. Returns "" or the reason to stop the child.
  using OnLine = std::function<std::string(std::string_view line)>;

  RuleChild(RuleLimits limits, OnLine on_line) : limits_(limits), on_line_(std::move(on_line)) {}
  ~RuleChild();
  RuleChild(const RuleChild&) = delete;
  RuleChild& operator=(const RuleChild&) = delete;

  // Starts the program with `environment` ("NAME=VALUE") added to that of this process. On failure
  // stopped() returns the reason.
  void Start(const std::vector<std::string>& command, const std::vector<std::string>& environment);
  // Sends text. Waits if the child has much to read. Does nothing if the child was stopped.
  void Send(std::string_view text);
  // Waits until `done` returns true, or the child is stopped.
  void WaitUntil(const std::function<bool()>& done);
  // Ends the input, and waits until the child has ended.
  void Finish();
  // Ends the child and all processes of its group. `why` is kept if it is the first reason.
  void Stop(const std::string& why);

  // Returns why the child ended early; "" if it did not.
  const std::string& stopped() const { return why_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool Pump(bool wait);
  void ReadLines();
  void ReadPrinted();
  void Write();
  void CloseAll();
  bool Reap();
  void ReportEnd(int status);

  const RuleLimits limits_;
  const OnLine on_line_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends
  std::string waiting_;                // for the child
  size_t sent_ = 0;                    // of waiting_
  std::string line_;                   // incomplete
  std::string printed_;                // the end of its standard error
  size_t printed_bytes_ = 0, lines_ = 0;
  bool ending_ = false;  // its input has ended
  double waited_ = 0;    // seconds
  Clock::time_point progress_at_{};
  std::string why_;
};

}  // namespace plumbline::audit
