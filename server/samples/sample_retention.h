// Removes raw rows and token lists that are too old from segments that are no longer written.
// Series, summaries and other evidence stay. Earlier verdicts stay, because the checkpoint holds
// them. The samples of a stored finding stay too, so that a journal that is judged again gives the
// same finding.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/framed_log.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"
#include "server/journal/segment_packer.h"
#include "server/process/counters.h"

namespace plumbline::server {

// The places where samples must stay: the sites and steps of findings. A rule also uses some steps
// before those that it names, so the samples of these steps stay too.
class NeededSamples {
 public:
  static constexpr int64_t kBefore = 64;  // steps

  void Add(const v1::Finding& finding);
  bool Needs(const std::string& run, const v1::Evidence& evidence) const;

 private:
  struct Place {
    std::string layer, op;  // empty: any
    int64_t first, last;
  };
  std::map<std::string, std::vector<Place>> by_run_;
};

struct SampleRetentionOptions {
  std::chrono::nanoseconds keep{};  // since receipt; 0: no limit
  // Returns the places of every stored finding. Called once per segment.
  std::function<NeededSamples()> needed;
  std::function<int64_t()> unix_ns;
  // A wall clock that jumped may be wrong for a while. So a segment must be old at two checks that
  // are this far apart on a monotonic clock.
  std::chrono::nanoseconds second_look = std::chrono::minutes(1);
  std::function<std::chrono::steady_clock::time_point()> now = [] {
    return std::chrono::steady_clock::now();
  };
};

// Not thread-safe: used by the packer's thread.
class SampleRetention : public SegmentEditor {
 public:
  // `counters` must outlive it.
  SampleRetention(SampleRetentionOptions options, Counters* counters)
      : options_(std::move(options)), counters_(counters) {}

  // Returns true if the whole segment was received too long ago, and its samples still exist.
  // `next`: the segment after it, which began when it ended.
  bool Due(const Segment& segment, const Segment& next) override;
  void Begin() override;
  bool Edit(FrameType type, std::string_view payload, std::string* instead) override;
  // Counts and logs the result.
  void Done(const Segment& segment, bool replaced) override;

 private:
  const SampleRetentionOptions options_;
  Counters* const counters_;
  NeededSamples needed_;  // for the segment
  uint64_t removed_ = 0, kept_ = 0;
  std::set<uint64_t> done_;  // first entries
  std::map<uint64_t, std::chrono::steady_clock::time_point> old_since_;
};

}  // namespace plumbline::server
