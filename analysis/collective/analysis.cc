#include "analysis/collective/analysis.h"

namespace plumbline::analysis {
namespace {

using List = std::vector<std::shared_ptr<const ReductionAnalysis>>;

// Keeps the joined calls in memory as long as pointers to them exist.
struct Shared {
  std::shared_ptr<const std::vector<JoinedReduction>> joined;
  List list;
};

std::shared_ptr<const ReductionAnalysis> Analyse(const JoinedReduction& joined, bool replay) {
  auto a = std::make_shared<ReductionAnalysis>();
  a->joined = &joined;
  absl::StatusOr<ReductionCase> c = DecodeReduction(joined);
  if (!c.ok()) {
    a->blocked = std::string(c.status().message());
    return a;
  }
  a->c = *std::move(c);
  PreferMajority(a->c);
  a->replayed = replay;
  a->replay = replay ? ReplayReduction(a->c) : JudgedColumns(a->c);
  const double postscale = joined.call_of(0).postscale();
  a->bound = CheckSumBound(a->c, a->replay, postscale == 0 ? 1 : postscale);
  // If the results are not a plain sum, no rule judges them as a plain sum.
  a->blocked = a->bound.explanation;
  if (a->bound.postscaled)
    a->blocked =
        "postscaled: every element is the sum times the declared postscale; record the output "
        "before the scaling to judge the sum itself";
  return a;
}

}  // namespace

std::shared_ptr<const ReductionAnalysis> WithoutValues(const ReductionAnalysis& a) {
  auto out = std::make_shared<ReductionAnalysis>();
  out->blocked = a.blocked;
  static_cast<ReductionFrame&>(out->c) = a.c;
  out->replay = a.replay;
  out->replay.shapes.reset();
  out->replayed = a.replayed;
  return out;
}

std::vector<uint32_t> ReductionAnalysis::ranks() const {
  std::vector<uint32_t> out;
  if (joined->items.size() < 2) return out;
  for (const Item& item : joined->items) out.push_back(item.source->rank());
  return out;
}

std::vector<std::shared_ptr<const ReductionAnalysis>> AnalyseReductions(const SiteStep& step) {
  const auto analyse = [&] {
    auto shared = std::make_shared<Shared>();
    shared->joined = JoinReductions(step);
    int replays = 0;
    for (const JoinedReduction& joined : *shared->joined) {
      if (!joined.has_sample()) continue;
      shared->list.push_back(Analyse(joined, replays < kMostReplays));
      if (shared->list.back()->replayed) ++replays;
    }
    return shared;
  };
  return step.cache.Get<const Shared>(analyse)->list;
}

}  // namespace plumbline::analysis
