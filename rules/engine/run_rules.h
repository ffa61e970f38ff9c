// The rules of one run, one object each, with a limit on the memory of their state.
//
// A rule remembers streams, sites and ranks, and a run may name any number of them. So the bytes
// shown to the rules are counted, and from time to time their state is weighed by the size that a
// checkpoint would write. The time depends only on what was shown, so that it is the same live,
// after a restart and in an audit. If the state is too large, the rule that remembers most reports
// this and no longer judges the run. Its earlier findings stay. Series that are followed point by
// point have a separate limit (analysis/series/judged_series.h), and count from their first point.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/engine/active_rules.h"
#include "rules/rule.h"

namespace plumbline::rules {

class RunRules {
 public:
  // Called when a rule stops judging, with the bytes that it remembered.
  using OnSetAside = std::function<void(size_t rule, uint64_t bytes)>;

  // `active` must outlive this. The rules may remember `most_bytes`, plus what results from an
  // eighth of it that is shown. 0: no limit, and nothing is weighed.
  RunRules(const std::vector<ActiveRule>* active, uint64_t most_bytes, JudgedSeries series);

  size_t size() const { return rules_.size(); }
  // Returns nullptr if the rule no longer judges this run.
  Rule* At(size_t i) const { return judging_[i]; }
  const char* Id(size_t i) const { return (*active_)[i].entry->info->id; }

  // Returns the rules that read the scalars of the step's site, ascending; none if the series is
  // not judged. Valid as long as this.
  const std::vector<size_t>& ReadersOf(const SiteStep& step) {
    return step.number != 0 && step.number < numbered_.size() && numbered_[step.number] != nullptr
               ? *numbered_[step.number]
               : FindReaders(step);
  }
  // Records that a rule is shown a site of the closing step.
  void Sees(size_t i) { sees_[i / kBits] |= uint64_t{1} << (i % kBits); }
  // Calls `judge(i)` for each rule that judges this step's end, ascending. If Rule::judges_steps is
  // false after the call, the rule is left out from then on.
  template <typename Judge>
  void EachAtStepEnd(const Judge& judge) {
    for (size_t word = 0; word < sees_.size(); ++word) {
      uint64_t requested =
          (std::exchange(sees_[word], 0) | judges_unseen_[word]) & at_step_end_[word];
      for (; requested != 0; requested &= requested - 1) {
        const size_t i = word * kBits + static_cast<size_t>(std::countr_zero(requested));
        Rule* const rule = At(i);
        if (rule == nullptr) continue;
        judge(i, *rule);
        if (!rule->judges_steps()) at_step_end_[word] &= ~(uint64_t{1} << (i % kBits));
      }
    }
  }
  // Returns true if rule i is called at the step's end. `sees`: the step showed it a site.
  bool IsRequestedAtStepEnd(size_t i, bool sees) const {
    const uint64_t bit = uint64_t{1} << (i % kBits);
    return (at_step_end_[i / kBits] & bit) != 0 && (sees || (judges_unseen_[i / kBits] & bit) != 0);
  }
  // Call after its JudgeStep. If it returns false, the rule is not called at a step's end again.
  bool QueryAgain(size_t i) {
    if (At(i)->judges_steps()) return true;
    at_step_end_[i / kBits] &= ~(uint64_t{1} << (i % kBits));
    return false;
  }
  // Counts a step that the caller shows to the rules.
  void Show(const SiteStep& step);
  // Call after a step, or after late evidence of one. Weighs if enough was shown since the last
  // time.
  void WeighIfDue(const OnSetAside& on_set_aside);
  // Weighs now. Rules stop judging until the state takes at most `bytes`.
  void MakeRoom(uint64_t bytes, const OnSetAside& on_set_aside);

  // Returns the bytes as last weighed, plus those of series that came since then.
  uint64_t bytes() const { return bytes_ + fresh_series_ * kSeriesBytes; }
  JudgedSeries& series() { return series_; }
  const JudgedSeries& series() const { return series_; }
  size_t set_aside() const { return set_aside_.size(); }
  uint64_t most_bytes() const { return most_bytes_; }

  // Stores or reads the counts, and the state of the rules, each in a section of its name.
  void PersistCounts(Archive& archive, bool with_series);
  void PersistRules(Archive& archive);

 private:
  const std::vector<ActiveRule>* const active_;
  const uint64_t most_bytes_;
  std::vector<std::unique_ptr<Rule>> rules_;  // parallel to active_; a fresh rule if set aside
  std::vector<Rule*> judging_;                // into rules_; nullptr if set aside
  void FindJudging();
  const std::vector<size_t>& FindReaders(const SiteStep& step);
  const std::vector<size_t>& Numbered(const SiteStep& step, const std::vector<size_t>& readers);
  std::vector<size_t> QueryReader(const v1::Site& site);
  uint64_t WeighAll();

  // Bytes that a short series takes in memory, in addition to its size in a checkpoint.
  static constexpr uint64_t kSeriesBytes = 3 << 10;

  // One bit per rule.
  static constexpr size_t kBits = 64;
  std::vector<uint64_t> at_step_end_;    // initially all
  std::vector<uint64_t> sees_;           // in the closing step; 0 between steps
  std::vector<uint64_t> judges_unseen_;  // ScalarRule::judges_unseen_steps
  uint64_t shown_ = 0;                   // bytes since the last weighing
  uint64_t bytes_ = 0;
  std::set<std::string> set_aside_;  // ids
  JudgedSeries series_;
  uint64_t fresh_series_ = 0;  // admitted since the rules were weighed
  // Derived: the lists of rules that read a site, each once, and the list of each site.
  std::set<std::vector<size_t>> lists_;
  std::unordered_map<std::string, const std::vector<size_t>*> readers_;
  std::vector<const std::vector<size_t>*> numbered_;  // by SiteStep::number
};

}  // namespace plumbline::rules
