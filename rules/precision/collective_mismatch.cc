#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "rules/bases/collective_span.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/collective-mismatch

The ranks call one collective with different dtypes, numbers of elements, operations or roots.

**Why.** NCCL does not compare the calls of the ranks. A rank that reduces 1,000,000 elements with another's
999,936 either hangs, or adds memory that belongs to something else; a rank that sends bf16 where the others send
fp16 adds bit patterns: 1.0 in bf16 (0x3f80) reads as 1.875 in fp16.

**Bad.** `count: 999936 on rank 3, 1000000 on ranks 0, 1, 2`.

**Good.** Every rank states the same.

**How to fix it.**
- Look for code that runs on some ranks only: parameters without gradient (`find_unused_parameters` in DDP),
  an uneven last batch, a conditional collective.
- PyTorch: `TORCH_DISTRIBUTED_DEBUG=DETAIL` checks every call before it is made.
- A bucket whose order of parameters differs: build the model in the same order on every rank.
- Mixed precision: one `reduce_dtype` (FSDP), one `communication_data_type` (DeepSpeed) for the whole group.

**What it checks.** Calls joined by (group, sequence number), or by (step, n-th call) where the sequence number is unknown:
every rank must state the same wire dtype, count, operation and root. Calls that may differ in count by design
(`variable_count`) are compared in the rest; point-to-point calls are exempt. `run.reducing` records a call before it is made (the
first call of a site, and each change of size), so that it is known even if the process ends within the call.

**Strength.** `proved`: two ranks' own statements differ.

**Inconclusive when** only one rank's statement was recorded.

**Reasons.** `one-record`: one record describes all ranks, so the calls of single ranks were not compared.

**What it cannot see.** Ranks that did not report; calls whose numbers were not recorded and that the ranks made in
different order.

**Cost.** A comparison of four numbers a rank and call.
)page";

constexpr RuleInfo kInfo = {"precision/collective-mismatch",
                            "ranks disagree on what they reduce",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

// Returns the value that most ranks report. If two values are equally frequent, returns nullptr,
// because then no rank is the odd one.
const std::string* Majority(const std::map<std::string, std::vector<uint32_t>>& ranks_of) {
  const std::string* best = nullptr;
  size_t most = 0;
  for (const auto& [value, ranks] : ranks_of) {
    if (ranks.size() == most) best = nullptr;
    if (ranks.size() <= most) continue;
    most = ranks.size();
    best = &value;
  }
  return best;
}

class CollectiveMismatch : public Rule {
 public:
  explicit CollectiveMismatch(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const auto calls = JoinReductions(step);
    if (calls->empty()) return;
    Site& site = sites_[CollectiveKeyOf(step)];
    site.TakeStep(step);
    for (const JoinedReduction& joined : *calls) {
      for (const Item& item : joined.items) site.ranks.insert(item.source->rank());
      if (joined.items.size() < 2) continue;
      ++site.compared;
      for (const ReductionMismatch& m : FindMismatches(joined)) {
        if (site.reported.insert(m.what).second) out.Add(Found(joined, m));
      }
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, site] : sites_) {
      if (!site.reported.empty()) continue;
      v1::Verdict verdict =
          site.compared > 0
              ? Pass(absl::StrCat("the ranks agree on dtype, count, operation and root"))
              : Inconclusive(
                    "one-record: one record describes all ranks; the calls of single ranks were "
                    "not compared");
      Put(*verdict.mutable_details(), "calls", static_cast<double>(site.compared));
      site.Place(key, &verdict);
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(sites_);
  }

 private:
  struct Site : CollectiveSpan {
    uint64_t compared = 0;
    std::set<std::string> reported;
    void Persist(Archive& a) { a(any, step_first, step_last, compared, ranks, reported); }
  };

  static v1::Verdict Found(const JoinedReduction& joined, const ReductionMismatch& m) {
    std::map<std::string, std::vector<uint32_t>> ranks_of;
    for (size_t i = 0; i < m.values.size(); ++i) ranks_of[m.values[i]].push_back(m.ranks[i]);
    const std::string* usual = Majority(ranks_of);
    std::vector<std::string> parts;
    std::vector<uint32_t> odd;
    FindingBuilder found;
    for (const auto& [value, ranks] : ranks_of) {
      parts.push_back(absl::StrCat(value, " on ", RankWords(ranks)));
      found.Witness(value, RankWords(ranks));
      if (usual == nullptr || value != *usual) odd.insert(odd.end(), ranks.begin(), ranks.end());
    }
    for (const uint32_t rank : odd) found.verdict().mutable_site()->add_ranks(rank);
    found.Level(v1::LEVEL_ERROR)
        .Strength(v1::STRENGTH_PROVED)
        .Title(absl::StrCat("ranks disagree on the ", m.what, " of a collective"))
        .Explain(absl::StrCat("Call ", joined.sequence, " of ", GroupWords(joined.group), ": ",
                              m.what, " ", absl::StrJoin(parts, "; "), "."))
        .Cause(absl::StrCat("different-", m.what), 1)
        .Measured(absl::StrCat("different values of ", m.what),
                  static_cast<double>(ranks_of.size()))
        .Threshold(1, "every rank must use the same value")
        .Samples(m.values.size())
        .Fix(
            "Find code that runs on these ranks only (TORCH_DISTRIBUTED_DEBUG=DETAIL; unused "
            "parameters, an uneven last batch, a conditional collective, a different reduce "
            "dtype).");
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "what", m.what);
    Put(details, "group", joined.group);
    Put(details, "sequence", static_cast<double>(joined.sequence));
    *found.finding().mutable_details() = details;
    if (!joined.sequence_known) {
      const char* assumption =
          "ranks made their calls in the same order (no sequence number was recorded)";
      found.verdict().add_assumptions(assumption);
      found.Assume(assumption);
    }
    return found.Take();
  }

  std::map<CollectiveKey, Site> sites_;
};

}  // namespace

CatalogueEntry collective_mismatch() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CollectiveMismatch>(options);
          }};
}

}  // namespace plumbline::rules
