// The state of precision/collective-sum for one site over the steps of a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/collective/analysis.h"
#include "analysis/collective/errors.h"
#include "analysis/collective/growth.h"
#include "analysis/collective/sum_likeness.h"
#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::analysis {

class ReductionStatistics {
 public:
  // `alpha` is the site's share of the run's.
  explicit ReductionStatistics(double alpha)
      : stream(kOfKnown * alpha), unknown((1 - kOfKnown) * alpha) {}

  // Takes one step's calls. If a step was taken before (a restart repeats it), ignores it.
  void Take(const SiteStep& step,
            const std::vector<std::shared_ptr<const ReductionAnalysis>>& calls);
  // Takes calls without a sample: their dtype and group size.
  void TakeCalls(const std::vector<JoinedReduction>& calls);

  bool judged() const { return last != nullptr; }
  // Fills the details: the keys of the contract, bias, what_if, growth. The model is that of
  // `replay`; if it is null, that of the last judged call.
  void Describe(google::protobuf::Struct& details, const ReductionReplay* replay = nullptr) const;
  std::vector<std::string> Assumptions() const;
  // Returns a text such as "bf16 ring starting at rank 3: 64 of 64 samples; the only match among
  // the candidates (...)".
  std::string ModelText() const;  // for the last call
  static std::string ModelText(const ReductionReplay& replay);
  const char* unit() const;
  // Returns the stream whose bias is that of an arithmetic: one that gives the results' bits, or an
  // unknown one that would be as biased in any order (reported while such calls arrive). If both
  // are biased, returns the worse. If none is, returns nullptr.
  const BiasStream* accused() const;
  bool unlike_sums() const;  // True if `unknown` is biased as no known sum is.
  // The step since which partial sums are narrow: the first that shows it, not the first judged.
  int64_t narrow_since() const { return narrow_first.value_or(step_first); }
  // Returns " Since step 40; in step 36 ...". If the first judged step shows it, returns an empty
  // text and adds no keys.
  std::string SinceText() const;
  void DescribeSince(google::protobuf::Struct& details) const;
  const BiasStream& of_last() const;      // the stream that contains the last call
  double log_wealth() const;              // an e-value of "no bias", for e-BH
  void Block(const std::string& reason);  // "short-id: sentence"; keeps the first reason of each id
  bool excused() const;  // true if the results look like something else, and this was reported

  // Errors of calls whose bits a candidate gives, and of the others. They are separate, because an
  // operation on the results of some steps (a clip that only large ones reach) is no bias of the
  // arithmetic in the other steps.
  BiasStream stream, unknown;
  SumLikeness likeness;  // of the calls that no candidate explains, from the first bias on
  // Calls without their values: the last replayed one of the newest step; the last explained one;
  // the one that `growth` uses.
  std::shared_ptr<const ReductionAnalysis> last, explained, narrow;
  std::vector<WhatIf> what_if;       // of the first judged call
  std::optional<RankGrowth> growth;  // of the first narrow model
  // The first step with a proved narrow model, and the last one before it whose sums a wide model
  // explains. The steps between were not sampled, or did not decide.
  std::optional<int64_t> narrow_first, wide_last;
  uint64_t calls = 0;                          // judged calls; one per step is in the stream
  std::map<std::string, std::string> blocked;  // the first reason of each id
  std::set<std::string> reported_blocked;
  v1::Level reported = v1::LEVEL_UNSPECIFIED;
  bool reported_broken = false;  // results that no order of additions gives
  int64_t step_first = 0;
  int64_t step_last = 0;
  std::set<uint32_t> ranks;
  // From calls alone.
  DType wire = DType::kUnspecified;
  uint32_t group_size = 0;
  uint64_t sampleless_calls = 0;

  void Persist(Archive& a) {
    const uint32_t version = a.Version(5, 4);
    a(stream, unknown, likeness, last, explained, narrow, what_if, growth, calls, blocked);
    a(reported_blocked, reported, reported_broken, step_first, step_last, ranks, wire, group_size);
    a(sampleless_calls, any_, bias_step_);
    if (version >= 5) a(narrow_first, wide_last);
  }

 private:
  static constexpr double kOfKnown = 7.0 / 8;  // of alpha
  void Note(const SiteStep& step);
  void NoteWidth(int64_t step, const ReductionReplay& replay);
  bool any_ = false;
  std::optional<int64_t> bias_step_;  // the newest step in a stream
};

}  // namespace plumbline::analysis
