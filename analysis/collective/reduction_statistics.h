// What precision/collective-sum knows of one site over the steps of a run.
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

namespace plumbline::rules {

class ReductionStatistics {
 public:
  // `alpha`: the site's share of the run's.
  explicit ReductionStatistics(double alpha)
      : stream(kOfKnown * alpha), unknown((1 - kOfKnown) * alpha) {}

  // One step's calls. A step that was taken before (a restart repeats it) is left out.
  void Take(const SiteStep& step,
            const std::vector<std::shared_ptr<const ReductionAnalysis>>& calls);
  // Calls without a sample: what they say of dtype and group size.
  void TakeCalls(const std::vector<JoinedReduction>& calls);

  bool judged() const { return last != nullptr; }
  // Keys of details: the contract's, bias, what_if, growth; the model's of `replay`, else of the
  // last judged call.
  void Describe(google::protobuf::Struct& details, const ReductionReplay* replay = nullptr) const;
  std::vector<std::string> Assumptions() const;
  // "bf16 ring starting at rank 3: 64 of 64 samples; the only match among the candidates (...)"
  std::string ModelText() const;  // of the last
  static std::string ModelText(const ReductionReplay& replay);
  const char* unit() const;
  // The stream whose bias is that of an arithmetic: one that gives the results' bits, or one that
  // no order was known for and that is as biased in any (told while such calls come). Of two the
  // worse; nullptr: none is.
  const BiasStream* accused() const;
  bool unlike_sums() const;  // `unknown` is biased as no sum is that is known here
  // Since when partial sums are narrow: the first step that shows them, not the first one judged.
  int64_t narrow_since() const { return narrow_first.value_or(step_first); }
  // " Since step 40; in step 36 ..."; empty, and no keys, where the first step judged shows them.
  std::string SinceText() const;
  void DescribeSince(google::protobuf::Struct& details) const;
  const BiasStream& of_last() const;      // the stream that the last call is in
  double log_wealth() const;              // an e-value of "no bias" for e-BH
  void Block(const std::string& reason);  // "short-id: sentence"; the first of an id is kept
  bool excused() const;                   // by what the results look like instead, and told

  // Errors of calls whose bits a candidate gives, and of the others. Kept apart: what was done to
  // the results of some steps (a clip that only large ones meet) is no bias of the arithmetic that
  // the other steps show.
  BiasStream stream, unknown;
  SumLikeness likeness;  // of the calls that no candidate explains, since there is a bias
  // Without their values: replayed last, of the newest step; explained last; and the one that
  // growth is of.
  std::shared_ptr<const ReductionAnalysis> last, explained, narrow;
  std::vector<WhatIf> what_if;       // of the first judged call
  std::optional<RankGrowth> growth;  // of the first narrow model
  // The first step of a narrow model that is proved, and the last one before it whose sums a wide
  // one explains: what lies between was not looked at, or told neither.
  std::optional<int64_t> narrow_first, wide_last;
  uint64_t calls = 0;                          // judged; one a step is in the stream
  std::map<std::string, std::string> blocked;  // reasons by id, the first of each
  std::set<std::string> told_blocked;
  v1::Level told = v1::LEVEL_UNSPECIFIED;
  bool told_broken = false;  // results that no order of additions gives
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
    a(told_blocked, told, told_broken, step_first, step_last, ranks, wire, group_size);
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

}  // namespace plumbline::rules
