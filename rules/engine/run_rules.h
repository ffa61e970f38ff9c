// The rules of one run, an object each, and what they remember of it kept within a bound.
//
// A rule remembers streams, sites and ranks, of which a run may have as many as it likes to name.
// So what the rules were shown is counted, and now and then what they remember is weighed, as a
// checkpoint would write it: by what was shown alone, so that it happens at the same place live,
// after a restart and in an audit. Where it is too much, the rule that remembers most says so and
// judges this run no further; what it found stays. Series that are followed point by point have a
// bound of their own (analysis/series/judged_series.h), and count from their first point on.
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
  // A rule judges no further; what it remembered, in bytes.
  using OnSetAside = std::function<void(size_t rule, uint64_t bytes)>;

  // `active` must outlive it. `most_bytes` may be remembered, and what comes of an eighth of it
  // that is shown beside; 0: no bound, and nothing is weighed.
  RunRules(const std::vector<ActiveRule>* active, uint64_t most_bytes, JudgedSeries series);

  size_t size() const { return rules_.size(); }
  // nullptr: it judges this run no further.
  Rule* At(size_t i) const { return judging_[i]; }
  const char* Id(size_t i) const { return (*active_)[i].entry->info->id; }

  // Those that read the scalars of the step's site, ascending; none if the series is not judged.
  // Valid as long as this.
  const std::vector<size_t>& ReadersOf(const SiteStep& step) {
    return step.number != 0 && step.number < numbered_.size() && numbered_[step.number] != nullptr
               ? *numbered_[step.number]
               : FindReaders(step);
  }
  // A rule is shown a site of the step that closes.
  void Sees(size_t i) { sees_[i / kBits] |= uint64_t{1} << (i % kBits); }
  // Those that judge whole steps, ascending: `judge(i)` is called for each that must be asked. One
  // whose rule does not, as Rule::judges_steps says behind the call, is left out from then on.
  template <typename Judge>
  void EachAtStepEnd(const Judge& judge) {
    for (size_t word = 0; word < sees_.size(); ++word) {
      uint64_t asked = (std::exchange(sees_[word], 0) | judges_unseen_[word]) & at_step_end_[word];
      for (; asked != 0; asked &= asked - 1) {
        const size_t i = word * kBits + static_cast<size_t>(std::countr_zero(asked));
        Rule* const rule = At(i);
        if (rule == nullptr) continue;
        judge(i, *rule);
        if (!rule->judges_steps()) at_step_end_[word] &= ~(uint64_t{1} << (i % kBits));
      }
    }
  }
  // One rule of them, in a step of which it was shown something or not.
  bool IsAskedAtStepEnd(size_t i, bool sees) const {
    const uint64_t bit = uint64_t{1} << (i % kBits);
    return (at_step_end_[i / kBits] & bit) != 0 && (sees || (judges_unseen_[i / kBits] & bit) != 0);
  }
  // Behind its JudgeStep: false: never again.
  bool AskAgain(size_t i) {
    if (At(i)->judges_steps()) return true;
    at_step_end_[i / kBits] &= ~(uint64_t{1} << (i % kBits));
    return false;
  }
  // They are shown this, by whoever calls them.
  void Show(const SiteStep& step);
  // After a step, or what came late of one: weighs where so much was shown since the last time.
  void WeighIfDue(const OnSetAside& on_set_aside);
  // Weighs now; rules judge no further until what is remembered takes at most so many bytes.
  void MakeRoom(uint64_t bytes, const OnSetAside& on_set_aside);

  // As weighed last, and what series that came since then take.
  uint64_t bytes() const { return bytes_ + fresh_series_ * kSeriesBytes; }
  JudgedSeries& series() { return series_; }
  const JudgedSeries& series() const { return series_; }
  size_t set_aside() const { return set_aside_.size(); }
  uint64_t most_bytes() const { return most_bytes_; }

  // What is counted here, and what the rules remember, each in a section of its name.
  void PersistCounts(Archive& archive, bool with_series);
  void PersistRules(Archive& archive);

 private:
  const std::vector<ActiveRule>* const active_;
  const uint64_t most_bytes_;
  std::vector<std::unique_ptr<Rule>> rules_;  // parallel to active_; fresh ones where set aside
  std::vector<Rule*> judging_;                // of rules_; nullptr where set aside
  void FindJudging();
  const std::vector<size_t>& FindReaders(const SiteStep& step);
  const std::vector<size_t>& Numbered(const SiteStep& step, const std::vector<size_t>& readers);
  std::vector<size_t> AskWhoReads(const v1::Site& site);
  uint64_t WeighAll();

  // What a series of few points takes in memory beside what a checkpoint holds of it.
  static constexpr uint64_t kSeriesBytes = 3 << 10;

  // A bit a rule.
  static constexpr size_t kBits = 64;
  std::vector<uint64_t> at_step_end_;    // at first all
  std::vector<uint64_t> sees_;           // in the step that closes; 0 between steps
  std::vector<uint64_t> judges_unseen_;  // Rule::judges_unseen_steps
  uint64_t shown_ = 0;                   // bytes since they were weighed
  uint64_t bytes_ = 0;
  std::set<std::string> set_aside_;  // ids
  JudgedSeries series_;
  uint64_t fresh_series_ = 0;  // admitted since the rules were weighed
  // Found again: the lists of rules that read a site, each once, and which of them a site has.
  std::set<std::vector<size_t>> lists_;
  std::unordered_map<std::string, const std::vector<size_t>*> readers_;
  std::vector<const std::vector<size_t>*> numbered_;  // by SiteStep::number
};

}  // namespace plumbline::rules
