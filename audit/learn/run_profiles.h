// The interval of each subject in each run that is read: what plumb learn learns from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/learn/meter.h"
#include "audit/steps/step_watcher.h"

namespace plumbline::audit {

// The smallest and largest number of a subject.
struct Interval {
  double low = INFINITY, high = -INFINITY;
  uint64_t count = 0;

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
    ++count;
  }
};

using RunProfile = std::map<Subject, Interval>;

// Not thread-safe.
class RunProfiles : public StepWatcher {
 public:
  RunProfiles()
      : meter_([this](const Subject& subject, double value, const MeterPlace& place) {
          profiles_[*place.run][subject].Add(value);
        }) {}

  void TakeSite(const analysis::SiteStep& step) override { meter_.TakeSite(step); }
  void EndStep(const analysis::StepEnd& step) override { meter_.EndStep(step); }
  void EndRun(const analysis::RunSummary& run) override { profiles_[run.run]; }
  std::vector<WatcherVerdict> Finish() override { return {}; }

  // By run.
  const std::map<std::string, RunProfile>& profiles() const { return profiles_; }

 private:
  std::map<std::string, RunProfile> profiles_;
  Meter meter_;
};

}  // namespace plumbline::audit
