// Ranks that are trained on the same rows, by the digests of run.watch: a part of health/same-data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/batches/batches.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"

namespace plumbline::rules {

// The ranks of one role.
class RankBatches {
 public:
  static constexpr std::string_view kHigh = "batch_digest/high", kLow = "batch_digest/low",
                                    kGroup = "batch_digest/group";

  static bool Reads(const v1::Site& site) {
    return site.op() == kHigh || site.op() == kLow || site.op() == kGroup;
  }

  // Takes one of the three series of two ranks or more. The upper halves of a step come before its
  // lower halves. Returns a finding once: two ranks of a group, not of one block of `replicas`
  // consecutive ranks, have the same rows.
  std::optional<v1::Verdict> Take(const analysis::SiteStep& step, uint32_t replicas,
                                  const char* fix) {
    std::map<uint32_t, double> values;
    for (const analysis::Item& item : step.items)
      values[item.source->rank()] = item.evidence->scalar().value();
    if (step.site.op() == kGroup) {
      for (const auto& [rank, lowest] : values) equal_.Group(rank, lowest);
    } else if (step.site.op() == kHigh) {
      upper_ = std::move(values);
    } else if (!upper_.empty()) {
      Join(step, values);
      if (!reported_) return Judge(step, replicas, fix);
    }
    return std::nullopt;
  }

  // upper_ is empty between steps.
  void Persist(Archive& a) { a(equal_, reported_); }

 private:
  void Join(const analysis::SiteStep& step, const std::map<uint32_t, double>& lower) {
    std::map<uint32_t, uint64_t> digests;
    for (const auto& [rank, upper] : upper_) {
      const auto low = lower.find(rank);
      if (low == lower.end()) continue;
      if (const auto whole = analysis::WholeDigest(upper, low->second)) digests[rank] = *whole;
    }
    upper_.clear();
    equal_.Take(step.attempt, step.step, digests);
  }

  std::optional<v1::Verdict> Judge(const analysis::SiteStep& step, uint32_t replicas,
                                   const char* fix) {
    std::vector<std::string> words;
    std::set<uint32_t> ranks;
    for (const std::vector<uint32_t>& same : equal_.Same()) {
      if (same.front() / replicas == same.back() / replicas) continue;
      ranks.insert(same.begin(), same.end());
      if (words.size() < 4) words.push_back(analysis::Capitalised(analysis::RankWords(same)));
    }
    if (ranks.empty()) return std::nullopt;
    reported_ = true;
    const std::string who = absl::StrJoin(words, "; ");
    return analysis::FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
        .Title("ranks are trained on the same rows")
        .Explain(absl::StrFormat("%s have the same rows of token ids in each of the %d steps from "
                                 "%d to %d, by their digests.",
                                 who, analysis::EqualBatches::kSteps, equal_.step_first(),
                                 step.step))
        .Cause("same-batch", 0.9)
        .Measured("ranks with the same rows as another rank", static_cast<double>(ranks.size()),
                  "ranks")
        .Threshold(0, "each rank has its own data")
        .Fix(fix)
        .Samples(analysis::EqualBatches::kSteps)
        .Witness("ranks", who)
        .Witness("step", static_cast<double>(step.step))
        .Assume(
            "each rank of a DistributedDataParallel group reads its own data (option replicas "
            "declares exceptions)")
        .At("", "data", equal_.step_first(), step.step, ranks)
        .Take();
  }

  analysis::EqualBatches equal_;
  std::map<uint32_t, double> upper_;  // by rank, of this step
  bool reported_ = false;
};

}  // namespace plumbline::rules
