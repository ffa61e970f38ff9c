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
  // `alpha` is the site's share of the run's alpha.
  explicit ReductionStatistics(double alpha)
      : stream(kOfKnown * alpha), unknown((1 - kOfKnown) * alpha) {}

  // Takes one step's calls. Ignores a step that was taken before, because a restart repeats it.
  void Take(const SiteStep& step,
            const std::vector<std::shared_ptr<const ReductionAnalysis>>& calls);
  // Takes calls without a sample: their dtype and group size.
  void TakeCalls(const std::vector<JoinedReduction>& calls);

  bool judged() const { return last != nullptr; }
  // Fills the details: the keys of the contract, bias, what_if, growth. The model is that of
  // `replay`, or if `replay` is null, of the last judged call.
  void Describe(google::protobuf::Struct& details, const ReductionReplay* replay = nullptr) const;
  std::vector<std::string> Assumptions() const;
  // Returns a text such as "bf16 ring starting at rank 3: 64 of 64 samples; the only match among
  // the candidates (...)".
  std::string ModelText() const;  // Describes the model of the last call.
  static std::string ModelText(const ReductionReplay& replay);
  const char* unit() const;
  // Returns the stream whose bias an arithmetic causes: an arithmetic that gives the results' bits,
  // or an unknown one that would be as biased in any order (reported as long as such calls arrive).
  // If both streams are biased, returns the worse one. If none is, returns nullptr.
  const BiasStream* accused() const;
  bool unlike_sums() const;  // True if `unknown` has a bias that no known sum has.
  // Returns the first step that shows narrow partial sums. It may be later than the first judged
  // step.
  int64_t narrow_since() const { return narrow_first.value_or(step_first); }
  // Returns a text such as " Since step 40; in step 36 ...". If the first judged step already shows
  // narrow partial sums, returns "".
  std::string SinceText() const;
  void DescribeSince(google::protobuf::Struct& details) const;
  const BiasStream& of_last() const;  // Returns the stream that contains the last call.
  double log_wealth() const;          // Returns ln of the e-value of "no bias", for e-BH.
  // `reason` is "short-id: sentence". Keeps the first reason of each id.
  void Block(const std::string& reason);
  bool excused() const;  // True if the results are not sums, and this was reported.

  // Errors of calls whose bits a candidate gives, and of other calls. They are separate, because an
  // operation on the results of some steps (a clip that only large ones reach) is not a bias of the
  // arithmetic in other steps.
  BiasStream stream, unknown;
  SumLikeness likeness;  // likeness of calls that no candidate explains, from the first bias on
  // Calls without their values. `last`: last replayed call of the newest step. `explained`: last
  // explained call. `narrow`: the call that `growth` uses.
  std::shared_ptr<const ReductionAnalysis> last, explained, narrow;
  std::vector<WhatIf> what_if;       // results of other arithmetics for the first judged call
  std::optional<RankGrowth> growth;  // growth for the first narrow model
  // The first step with a proved narrow model, and the last one before it whose sums a wide model
  // explains. The steps between were not sampled, or did not decide it.
  std::optional<int64_t> narrow_first, wide_last;
  // Number of judged calls; one per step is in a stream.
  uint64_t calls = 0;
  std::map<std::string, std::string> blocked;  // id -> first reason
  std::set<std::string> reported_blocked;
  v1::Level reported = v1::LEVEL_UNSPECIFIED;
  bool reported_broken = false;  // results that no order of additions can give were reported
  int64_t step_first = 0;
  int64_t step_last = 0;
  std::set<uint32_t> ranks;
  // These come from calls, also without samples.
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
  static constexpr double kOfKnown = 7.0 / 8;  // share of alpha for the stream of explained calls
  void Note(const SiteStep& step);
  void NoteWidth(int64_t step, const ReductionReplay& replay);
  bool any_ = false;
  std::optional<int64_t> bias_step_;  // newest step that is in a stream
};

}  // namespace plumbline::analysis
