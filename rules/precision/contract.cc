#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/product/product.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/contract

A matrix product is computed by another arithmetic than before: at another step, on another rank, after a restart.

**Why.** A library update, another GPU in the pool, an environment variable, a kernel chosen by timing: the
product is then summed in another order or in fewer bits, and a run that was reproducible is not: of 1,000 f32 dot
products of 4,096 normal factors, 977 change when eight lanes replace one, by 1.2e-6 of the result. Ranks that
differ drift apart where replicas should be equal; a restart on other hardware changes the loss by more than another seed does.

**Bad.** `step 400: aligned blocks of 32, 13 fraction bits; held since step 0: aligned blocks of 16, 25 bits`.

**Good.** One class over all steps and ranks, or shapes that differ: kernels are chosen by shape, and each shape
has its own reference.

**How to fix it.**
- Pin what chooses kernels: versions of CUDA, cuBLAS and the framework; `CUBLAS_WORKSPACE_CONFIG`,
  `torch.backends.cuda.matmul.*`, `NVIDIA_TF32_OVERRIDE`; autotuners (`torch.compile(mode="max-autotune")`,
  Triton) with a cache that is shared by all ranks.
- One GPU model in a job, or accept the difference and restart the comparison with a new run name.

**What it checks.** The class of arithmetics that explains a product's sampled elements (see
`precision/gemm-accumulator`) against the first one that was accepted at its site, for the same shapes and dtypes.
Each later class narrows the reference to what both have in common. A finding is a call that a class explains,
while every arithmetic of the reference fails on k = ln(10^6 C) of its elements, C the number of candidates.

With `plumb audit --contract FILE` (from `plumb fingerprint --output FILE`, or `plumbline.fingerprint(...)` in Python)
products of the contract's length and dtypes are held to that instead: each sampled element is computed again by
the contract's tree and arithmetic. One element that differs is a finding.

**Strength.** `proved` by replay.

**Inconclusive when** something is added to a product that a contract holds; where none does, no candidate explains a call (an unknown arithmetic may be the same or another), or the
reference misses some elements, but fewer than would prove it.

**Reasons.** `non-finite`: every sample has a NaN or infinite factor; `unexplained`: no candidate gives every element;
`too-many-shapes`: 65,536 shapes are kept; `addend`: a value was added to the product, which the contract does not
describe; `few-samples`: the reference differs on too few elements. Those of precision/gemm-accumulator for calls that
cannot be decoded.

**What it cannot see.** Changes between arithmetics that agree on every sampled element; shapes that occur once.

**Cost.** None beyond `precision/gemm-accumulator`'s.

**Sources.** Our own.
)page";

std::string Complaint(const std::string& contracts) {
  return std::string(HeldContracts::Parse(contracts).status().message());
}

constexpr OptionInfo kOptions[] = {
    {.name = "contracts",
     .type = OptionInfo::Type::kText,
     .unit = "",
     .default_value = "",
     .reason =
         "without a contract a run is compared with its own first step; --contract FILE sets one",
     .check = Complaint},
};

constexpr RuleInfo kInfo = {"precision/contract",
                            "the arithmetic changed during the run, or differs from the contract",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr char kFix[] =
    "Fix everything that selects the kernel: library versions, CUBLAS_WORKSPACE_CONFIG, "
    "torch.backends.cuda.matmul.*, NVIDIA_TF32_OVERRIDE, one autotuner cache and one GPU model for "
    "all ranks.";

struct Reference {
  std::vector<MatmulModel> models;  // models common to all calls so far
  std::string words;
  std::string library;
  uint32_t attempt = 0;
  int64_t step = 0;
  uint32_t rank = 0;
  int64_t agreed = 0;  // the last step in which a call matched
  void Persist(Archive& a) { a(models, words, library, attempt, step, rank, agreed); }
};

std::string Place(int64_t step, uint32_t rank) {
  return absl::StrCat("step ", step, ", rank ", rank);
}

class Contract : public Rule {
 public:
  explicit Contract(const Options& options) {
    if (auto held = HeldContracts::Parse(options.Text("contracts")); held.ok())
      held_ = *std::move(held);  // checked when the option was set
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    JudgeMatmuls(
        step, [&](const Item& item, const MatmulAnalysis& a) { return One(step, item, a); }, out);
  }

  // held_ comes from an option, so it is not stored.
  void Persist(Archive& archive) override {
    archive.Version(3, 3);
    archive(references_);
  }

 private:
  // Contains the shapes and dtypes, because the library chooses the kernel by them.
  using Key = std::tuple<v1::Role, std::string, std::string, int, uint64_t, uint64_t, DType, DType,
                         DType, bool>;
  static constexpr size_t kMostReferences = 1 << 16;

  v1::Verdict One(const SiteStep& step, const Item& item, const MatmulAnalysis& a) {
    if (a.replay.samples == 0)
      return Inconclusive("non-finite: every sample has a NaN or infinite factor");
    if (const HeldContract* held = held_.For(a.c)) return Hold(*held, a);
    if (!a.replay.explained()) {
      return Inconclusive(
          "unexplained: no candidate gives every element (see "
          "precision/gemm-accumulator)");
    }
    const v1::MatmulConfig& config = item.evidence->matmul().config();
    const Key key{step.role,        step.site.layer(), step.site.op(), a.c.inner,   config.rows(),
                  config.columns(), a.c.a_dtype,       a.c.b_dtype,    a.c.d_dtype, a.c.c.empty()};
    const auto found = references_.find(key);
    if (found == references_.end()) {
      if (references_.size() >= kMostReferences)
        return Inconclusive("too-many-shapes: the limit of 65,536 shapes is reached");
      references_[key] = {a.replay.accepted, a.replay.Words(),    a.c.library, step.attempt,
                          step.step,         item.source->rank(), step.step};
      return Pass("reference for later steps: " + a.replay.Words());
    }
    return Compare(step, item, a, &found->second);
  }

  static v1::Verdict Hold(const HeldContract& held, const MatmulAnalysis& a) {
    const std::string name = absl::StrCat(
        held.contract.name, held.contract.library.empty() ? "" : " of " + held.contract.library);
    if (!a.c.c.empty()) {
      return Inconclusive("addend: a value was added to the product; the contract of " + name +
                          " describes the product alone");
    }
    const HeldMatches of = ReplayContract(held, a.c);
    const std::string share = absl::StrFormat("%d of %d elements", of.matches, of.samples);
    if (of.matches == of.samples) return Pass("as the contract of " + name + ": " + share);
    FindingBuilder built(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    built.Title("a product is not computed as its contract states")
        .Explain(absl::StrFormat("The contract of %s (%s; %s) gives %s. Sample %d is %.9g; the "
                                 "contract gives %.9g. The elements are explained by: %s.",
                                 name, held.contract.order, held.contract.arithmetic, share,
                                 of.first_miss, of.found, of.held, a.replay.Words()))
        .Cause("contract-broken", 1)
        .Measured("elements that differ from the contract",
                  static_cast<double>(of.samples - of.matches), "elements")
        .Threshold(1, "a contract is exact")
        .Fix(kFix)
        .Samples(static_cast<uint64_t>(of.samples))
        .Witness("sample", of.first_miss)
        .Witness("found", of.found)
        .Witness("held", of.held);
    return built.Take();
  }

  static v1::Verdict Compare(const SiteStep& step, const Item& item, const MatmulAnalysis& a,
                             Reference* held) {
    std::vector<MatmulModel> common;
    for (const MatmulModel& model : held->models) {
      const auto& now = a.replay.accepted;
      if (std::find(now.begin(), now.end(), model) != now.end()) common.push_back(model);
    }
    if (!common.empty()) {
      held->models = std::move(common);
      held->agreed = step.step;
      return Pass("as at " + Place(held->step, held->rank) + ": " + a.replay.Words());
    }
    const int32_t least = LeastMissed(a, held->models);
    if (least < a.replay.needed) {
      return Inconclusive(absl::StrFormat(
          "few-samples: %s, and the reference (%s) differs on only %d elements; the rule needs %d",
          a.replay.Words(), held->words, least, a.replay.needed));
    }
    return Changed(step, item, a, *held, least);
  }

  // Returns how many elements the closest model of the reference fails to reproduce. Runs models
  // that the replay did not try.
  static int32_t LeastMissed(const MatmulAnalysis& a, const std::vector<MatmulModel>& models) {
    int32_t least = a.replay.needed;
    for (const MatmulModel& model : models) {
      const auto tally = std::find_if(a.replay.tallies.begin(), a.replay.tallies.end(),
                                      [&](const MatmulCounts& t) { return t.model == model; });
      if (tally != a.replay.tallies.end()) {
        least = std::min(least, tally->missed);
      } else {
        const MatmulMatches of = CountMatches(a.c, model);
        least = std::min(least, of.samples - of.matches);
      }
    }
    return least;
  }

  static std::string Cause(const SiteStep& step, const MatmulAnalysis& a, const Reference& held) {
    if (!a.c.library.empty() && !held.library.empty() && a.c.library != held.library)
      return "another-library";
    if (step.attempt != held.attempt) return "restart";
    if (step.step == held.agreed) return "another-rank";
    return "changed-during-the-run";
  }

  static v1::Verdict Changed(const SiteStep& step, const Item& item, const MatmulAnalysis& a,
                             const Reference& held, int32_t least) {
    const bool libraries = Cause(step, a, held) == "another-library";
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title("a product is computed with a different arithmetic than before")
        .Explain(absl::StrFormat(
            "At %s: %d of %d elements are %s. The reference since %s is %s, which differs on at "
            "least %d of them.%s",
            Place(step.step, item.source->rank()), a.replay.matches, a.replay.samples,
            a.replay.Words(), Place(held.step, held.rank), held.words, least,
            libraries ? absl::StrCat(" The library was ", held.library, ", now ", a.c.library, ".")
                      : ""))
        .Cause(Cause(step, a, held), 1)
        .Measured("elements that differ from the reference arithmetic", static_cast<double>(least),
                  "elements")
        .Threshold(static_cast<double>(a.replay.needed), "k = ln(10^6 C), where the count stops")
        .Fix(kFix)
        .Samples(static_cast<uint64_t>(a.replay.samples))
        .Witness("held", held.words)
        .Witness("held_step", static_cast<double>(held.step))
        .Witness("held_rank", held.rank)
        .Witness("found", a.replay.Words());
    return found.Take();
  }

  HeldContracts held_;
  std::map<Key, Reference> references_;
};

}  // namespace

CatalogueEntry contract() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<Contract>(options);
          }};
}

}  // namespace plumbline::rules
