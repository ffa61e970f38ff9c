// The course of a drift over a run's steps: its worst and its newest steps, and the step in which
// it ended. Pure functions of the series; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "analysis/drift/series.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// A stretch of consecutive steps.
struct DriftStretch {
  int64_t first = 0, last = 0;
  double k3 = 0;  // mean of min(k3, 1) over tokens
  // Lower bound of k3: 5 standard errors over steps and over tokens, by Student's t. If the
  // stretch has fewer than 8 steps, it is 0.
  double least = 0;
};

struct DriftCourse {
  bool judged = false;  // at least two stretches, of 4 steps or more
  DriftStretch worst, newest;
  double largest_least = 0;  // the largest `least` of all stretches
  // True if the drift was four times as large as its newest stretch, and the last 8 steps or more
  // are healthy: k3 at most 3e-3, and no step near the worst. The healthy steps must be more than
  // any healthy stretch between two bad steps.
  bool ended = false;
  int64_t end_step = 0;  // the first healthy step after the last bad one

  // Returns " Worst in steps 8 to 15: k3 0.2. ...", or "" if there are fewer than two stretches.
  std::string Words() const;
  // Adds "worst_look", "newest_look" and "end_step".
  void Describe(google::protobuf::Struct& details) const;
};

DriftCourse FollowDrift(std::span<const DriftPoint> points);

// The versions of the engine's weights over the trainer's steps, as recorded. Not thread-safe.
class VersionCourse {
 public:
  // Takes a token's version and the trainer's version at its step.
  void Add(int64_t step, int64_t version, int64_t train_version);

  // The longest stretch in which the engine kept one version while the trainer advanced. The first
  // stretch of the record does not count.
  struct Stand {
    // At least 8 versions of the trainer, four times any other stretch, and the engine changed its
    // version in at least 8 other steps.
    bool found = false;
    bool ended = false;           // the engine has a newer version in later steps
    int64_t first = 0, last = 0;  // steps
    int64_t version = 0;          // the version that the engine kept
    int64_t missed = 0;           // the trainer's updates in these steps
    int64_t longest_other = 0;    // the trainer's updates in the longest other stretch
  };
  Stand Find() const;
  void Persist(Archive& a) { a(steps_); }

 private:
  struct Versions {
    int64_t engine = 0;  // the newest one of the step's tokens
    int64_t trainer = 0;
    void Persist(Archive& a) { a(engine, trainer); }
  };
  std::map<int64_t, Versions> steps_;
};

}  // namespace plumbline::analysis
