// Finds the sequences for which the trainer waits, from the start and end times of a step's sampled
// sequences. Results of several steps can be merged, because they are sums and histograms. Stores
// the times of one step. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/rollout/sequence.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Quantiles of positive numbers, from bins of a quarter octave. They are too large by a factor of
// at most 1.19.
class TimeHistogram {
 public:
  void Add(double value);
  double Quantile(double share) const;  // NaN if empty
  uint64_t count() const { return count_; }
  void Persist(Archive& a) { a(count_, bins_); }

 private:
  static constexpr int kLowest = -40;  // lowest bin, in quarter octaves relative to 1
  static constexpr size_t kBins = 160;
  uint64_t count_ = 0;
  std::array<uint64_t, kBins> bins_{};
};

class SequenceTimes {
 public:
  static constexpr size_t kFewest = 20;  // sequences of a step, of which 5 % is one
  static constexpr size_t kWorkers = 64;

  void BeginStep() { open_.clear(); }
  void Take(const RolloutSequence& sequence);
  void EndStep();

  struct Worker {
    TimeHistogram seconds, tokens;
    uint64_t last = 0;  // number of steps in which it had the last sequence
    void Persist(Archive& a) { a(seconds, tokens, last); }
  };

  uint64_t steps() const { return steps_; }  // number of judged steps
  // Number of steps with times, but too few sequences.
  uint64_t small_steps() const { return small_; }
  uint64_t with_times() const { return with_times_; }
  uint64_t sequences() const { return sequences_; }
  // Sequences that end before they start, which are not used.
  uint64_t reversed() const { return reversed_; }
  double generation_seconds() const { return generation_; }
  double waiting_seconds() const { return waiting_; }
  // Returns the time from the end of the first 95 % of a step's sequences to the end of the last
  // sequence, divided by the time from the first start to the last end.
  double share() const { return waiting_ / generation_; }
  // Returns the share of tokens that were drawn in that time, if sequences advance evenly. If the
  // trainer had not waited, they would be one version older.
  double late_share() const { return late_ / tokens_judged_; }
  double longest_wait() const { return longest_wait_; }
  int64_t longest_step() const { return longest_step_; }
  const std::string& longest_id() const { return longest_id_; }
  const std::map<std::string, Worker>& workers() const { return workers_; }
  const TimeHistogram& tokens() const { return tokens_; }
  const TimeHistogram& seconds() const { return seconds_; }

  // open_ is used within a step only, so it is not stored.
  void Persist(Archive& a) {
    a(steps_, small_, with_times_, sequences_, reversed_, generation_, waiting_, late_);
    a(tokens_judged_, longest_wait_, longest_step_, longest_id_, workers_, tokens_, seconds_);
  }

 private:
  struct Span {
    double start, end;
    double tokens;
    std::string id, worker;
    int64_t step;
  };
  Worker& WorkerOf(const std::string& name);

  std::vector<Span> open_;
  uint64_t steps_ = 0, small_ = 0, with_times_ = 0, sequences_ = 0, reversed_ = 0;
  double generation_ = 0, waiting_ = 0, late_ = 0, tokens_judged_ = 0, longest_wait_ = 0;
  int64_t longest_step_ = 0;
  std::string longest_id_;
  std::map<std::string, Worker> workers_;
  TimeHistogram tokens_, seconds_;
};

}  // namespace plumbline::analysis
