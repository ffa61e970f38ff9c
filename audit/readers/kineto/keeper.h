// Converts events to columns. Drops what no rule needs, and replaces names by numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "analysis/timeline/timeline.h"
#include "audit/readers/kineto/event.h"

namespace plumbline::audit {

// Memory: the columns of GPU work, launches and spans that explain gaps. The number and bytes of
// names are bounded; beyond the bound, one name represents all others. Not thread-safe.
class TraceKeeper {
 public:
  TraceKeeper();

  void Take(const TraceEvent& event);

  // Sets the rank that the file states, possibly after the events. -1 if it states none.
  void SetRank(int64_t rank) { rank_ = rank; }
  int64_t rank() const { return rank_; }

  uint64_t without_time() const {
    return without_time_;
  }  // complete events without a start or
     // duration
  // negative(): complete events that end before they begin, which a profiler that corrects a clock
  // may write. timed(): the others.
  uint64_t negative() const { return negative_; }
  uint64_t timed() const { return timed_; }
  // Number of begin and end events, which are not supported.
  uint64_t pairs() const { return pairs_; }
  bool names_left_out() const { return names_left_out_; }

  // Returns the columns. Call once, after all other calls.
  timeline::Columns TakeColumns();

 private:
  struct GpuName {
    uint32_t id = 0;
    bool communicates = false;
  };
  uint8_t DeviceOf(std::string_view name);
  uint16_t CollectiveOf(const TraceEvent& event);
  struct HostName {
    uint32_t id = 0;  // kUnnamed: the name has no class and is never reported
    uint8_t classes = 0;
    bool launch = false, kernel_launch = false;
  };
  template <typename Value>
  using ByName = absl::flat_hash_map<std::string, Value>;
  // Assigns numbers to threads or streams. Caches the last one.
  struct Tracks {
    uint32_t Of(std::string_view a, std::string_view b);
    std::string key, last;
    uint32_t last_id = 0;
    absl::flat_hash_map<std::string, uint32_t> ids;
  };

  void TakeGpu(const TraceEvent& event);
  void TakeHost(const TraceEvent& event);
  GpuName GpuNameOf(std::string_view name);
  HostName HostNameOf(std::string_view name);
  uint32_t Intern(std::string_view name);
  bool RoomFor(std::string_view name);

  timeline::Columns columns_;
  ByName<GpuName> gpu_names_;
  ByName<HostName> host_names_;
  size_t name_bytes_ = 0;
  Tracks threads_, streams_;
  ByName<uint16_t> collectives_;
  int64_t rank_ = -1;
  std::string pipeline_ranks_;      // process group ranks of the first send or receive
  bool sends_to_no_known_ = false;  // kernels send and receive without naming their peers
  bool trains_ = false;             // a name shows that the process trains
  uint64_t without_time_ = 0, pairs_ = 0, negative_ = 0, timed_ = 0;
  bool names_left_out_ = false;
};

// Returns the index of `rank` in "[0, 4, 8]"; -1 if it is not there.
int64_t IndexOfRank(std::string_view ranks, int64_t rank);

}  // namespace plumbline::audit
