#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/experts/experts.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "base/load.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/router-dtype

The router's scores are kept in 16 bits, so several experts have equal scores, and the scores do not decide between them.

**Why.** bf16 keeps 8 bits: between 1 and 2 scores are 1/128 apart. With 256 experts, k = 8 and standard
normal logits, the 8th and the 9th are *equal* in bf16 for 7.6 % of the tokens (4.3 % with 64 experts,
0.4 % with 8 and k = 2), within 2 ulp for 33 %. Which expert then gets the token is decided by the order
of a library's top-k: lower numbers first on one backend, anything on another. Rounding alone gives 4 %
of the tokens other experts than fp32 would; training and inference round differently, so they choose
different experts there.

| scores | tokens that a library's order decides | level | what it means for the run |
|---|---|---|---|
| f32, or fewer than 64 experts | below 0.5 % | pass | nothing |
| bf16, 64 experts and more | 4.3 % (64), 7.6 % (256) | note | those tokens go elsewhere on another backend; a rollout
engine's routing differs from the trainer's |
| 16 bits, more than 1 % measured | as measured | warning | as above, and experts with low numbers get more than their share |

Fedus et al. (2021) found bf16 routers unstable and keep them in f32; none of it makes a gradient wrong, so no error.

**Bad.** `scores are bf16 with 256 experts: 33 % of the tokens are tied`.

**Good.** Scores in f32, the gate's product included.

**How to fix it.**
- Megatron-LM: `--moe-router-dtype fp32`.
- Tutel: `gate_type={'type': 'top', 'fp32_gate': True}`.
- DeepSpeed: keep the gate in fp32 (`TopKGate` casts its input; leave `wg` out of `.half()`).
- Hugging Face: `softmax(router_logits, dtype=torch.float)` comes too late; give `gate` float weights and
  a float input.
- In inference engines, the same: the gate is a small matrix.

**What it checks.** The dtype of the recorded scores, and the share of tokens whose own choice that dtype
leaves open: the k-th and the (k+1)-th score are within 2 ulp. bf16 scores with 64 experts or more are a
note; a tied share above 1 % of 16-bit scores is a warning. Scores recorded as f32 of which every one is
a bf16 number were rounded to bf16 on the way (the gate's product was taken in bf16 and cast too late)
and count as bf16; of these only exact ties show. Steps on which every token ties are those of a router
that was initialised to zero, and are counted apart.

**Strength.** `heuristic`: 64 experts and 1 % are customary. The dtype and the ties are facts of the
recording.

**Inconclusive when** no evidence contains the dtype (a recording without samples, made before the
dtype was recorded), every score is NaN or infinite, or fewer than 1,000 tokens were seen.

**Reasons.** `dtype-unknown`: no evidence contains the dtype of the scores; `non-finite`: every row holds a NaN or
infinite score; `untrained`: every token of every call has tied scores, as with a router initialised to zero;
`few-tokens`: too few tokens.

**What it cannot see.** Scores that are handed to the probe in another dtype than the router used; a top-k
taken on the softmax of the logits, which ties more.

**Cost.** One check per sample until it shows an f32 that is not a bf16 value.

**Sources.** Fedus et al., "Switch Transformers", 2021, on selective precision of the router.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "experts",
     .type = OptionInfo::Type::kInteger,
     .unit = "experts",
     .default_value = "64",
     .reason = "from this number of experts on, more than 4 % of the tokens have equal k-th and "
               "next scores",
     .low = 2,
     .high = 512},
    {.name = "tied-share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of tokens",
     .default_value = "0.01",
     .reason = "customary: ties on one token in a hundred affect training",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {"precision/router-dtype",
                            "router scores tie in 16 bits",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kFewTokens = 1000;
constexpr int64_t kBlockSteps = 100;  // steps after which the share is tested again

// Returns true if every finite score is a bf16 number. A few thousand are enough, because one in
// 65,536 real f32 numbers is.
bool HoldsBf16(const v1::Tensor& scores) {
  constexpr size_t kLooked = 4096;
  constexpr size_t kEnoughRows = 64;
  const size_t n = scores.data().size() / sizeof(float);
  size_t seen = 0;
  for (size_t i = 0; i < n && seen < kLooked; ++i) {
    const auto v = LoadRaw<float>(scores.data().data(), static_cast<int64_t>(i));
    if (!std::isfinite(v) || v == 0) continue;
    if ((std::bit_cast<uint32_t>(v) & 0xffff) != 0) return false;
    ++seen;
  }
  return seen >= kEnoughRows;
}

struct Precision {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  bool rounded = false;  // the dtype is f32, but all values are bf16 numbers
  bool half() const { return rounded || dtype == v1::DTYPE_BF16 || dtype == v1::DTYPE_F16; }
  bool bf16() const { return rounded || dtype == v1::DTYPE_BF16; }
  std::string name() const {
    return rounded ? "bf16 (stored as f32)" : std::string(DTypeName(static_cast<DType>(dtype)));
  }
  void Persist(Archive& a) { a(dtype, rounded); }
};

Precision PrecisionOf(const v1::Routing& routing) {
  Precision p;
  p.dtype = routing.sample().has_scores() ? routing.sample().scores().dtype()
                                          : routing.config().scores_dtype();
  if (!IsFloating(static_cast<DType>(p.dtype))) p.dtype = v1::DTYPE_UNSPECIFIED;
  if (p.dtype == v1::DTYPE_F32 && routing.sample().has_scores())
    p.rounded = HoldsBf16(routing.sample().scores());
  return p;
}

// Rows that are not padding.
struct Rows {
  uint64_t finite = 0;
  uint64_t tied = 0;  // among `finite`: tokens with a tie
  uint64_t non_finite = 0;
};

Rows RowsOf(const v1::Routing& routing) {
  const v1::RoutingSummary& s = routing.summary();
  const uint64_t adjacent = s.padding() + s.non_finite();
  if (routing.has_summary())
    return {s.tokens() - std::min(adjacent, s.tokens()), s.tied(), s.non_finite()};
  if (!routing.has_sample()) return {};
  const auto c = DecodeRouting(routing);
  if (!c.ok()) return {};
  return {static_cast<uint64_t>(c->judged_rows - c->non_finite), static_cast<uint64_t>(c->tied),
          static_cast<uint64_t>(c->non_finite)};
}

class RouterDtype : public Rule {
 public:
  explicit RouterDtype(const Options& options)
      : experts_(options.Integer("experts")), share_(options.Number("tied-share")) {}

  // Late calls are judged, because the order of calls does not matter.
  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    Layer* layer = nullptr;
    if (step.site.op() == kLoadsOp) return;  // the layer's whole calls have the same data
    for (const Item& item : step.items) {
      if (!item.evidence->has_routing()) continue;
      layer = &layers_[{step.role, step.site.layer(), step.site.op()}];
      Take(item.evidence->routing(), *layer);
      layer->ranks.insert(item.source->rank());
    }
    if (layer == nullptr) return;
    layer->step_first = layer->steps == 0 ? step.step : std::min(layer->step_first, step.step);
    layer->step_last = std::max(layer->step_last, step.step);
    ++layer->steps;
    if (layer->coarsest.bf16() && layer->experts >= experts_ && !layer->noted) {
      layer->noted = true;
      out.Add(Found(step.site, *layer, false));
    }
    if (layer->steps % kBlockSteps == 0) Weigh(step.site, *layer, out);
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (auto& [key, layer] : layers_) {
      v1::Site site;
      site.set_layer(std::get<1>(key));
      site.set_op(std::get<2>(key));
      Weigh(site, layer, out);
      if (!layer.noted && !layer.warned) out.Add(Complete(site, layer, Rest(layer)));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(layers_);
  }

 private:
  struct Layer {
    Precision coarsest;
    int64_t experts = 0;
    int64_t steps = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
    std::set<uint32_t> ranks;
    uint64_t tokens = 0;  // finite tokens without padding, in 16-bit calls since the last test
    uint64_t tied = 0;
    uint64_t seen = 0;        // such tokens over the whole run, for any dtype
    uint64_t non_finite = 0;  // rows with a non-finite value
    uint64_t untrained_calls = 0;
    double share = 0;  // share of ties at the last test
    bool weighed = false;
    bool noted = false;
    bool warned = false;

    void Persist(Archive& a) {
      a(coarsest, experts, steps, step_first, step_last, ranks, tokens, tied, seen, non_finite);
      a(untrained_calls, share, weighed, noted, warned);
    }
  };

  static void Take(const v1::Routing& routing, Layer& layer) {
    const Precision p = PrecisionOf(routing);
    const bool known = p.dtype != v1::DTYPE_UNSPECIFIED;
    // The precision that a sample of f32 shows is also used for the summaries between samples.
    if (known && (layer.coarsest.dtype == v1::DTYPE_UNSPECIFIED || p.half())) layer.coarsest = p;
    layer.experts = std::max(layer.experts, static_cast<int64_t>(routing.config().experts()));
    const Rows rows = RowsOf(routing);
    layer.non_finite += rows.non_finite;
    layer.seen += rows.finite;
    if (!layer.coarsest.half() || rows.tied > rows.finite) return;
    if (rows.finite > 0 && rows.tied == rows.finite) {
      ++layer.untrained_calls;
      return;
    }
    layer.tokens += rows.finite;
    layer.tied += rows.tied;
  }

  // Tests the share of ties since the last test. If there are too few tokens, continues to collect.
  void Weigh(const v1::Site& site, Layer& layer, VerdictSink& out) const {
    if (layer.tokens < kFewTokens) return;
    layer.weighed = true;
    layer.share = static_cast<double>(layer.tied) / static_cast<double>(layer.tokens);
    if (!layer.warned && layer.share > share_) {
      layer.warned = true;
      out.Add(Found(site, layer, true));
    }
    layer.tokens = layer.tied = 0;
  }

  v1::Verdict Found(const v1::Site& site, const Layer& layer, bool ties) const {
    FindingBuilder found(ties ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title(ties ? "router scores tie in 16 bits" : "router scores are bf16 over many experts")
        .Explain(ties ? absl::StrFormat("Scores are %s; for %d tokens, %.1f %% have a k-th and a "
                                        "next score within 2 ulp of each other.",
                                        layer.coarsest.name(), layer.tokens, 100 * layer.share)
                      : absl::StrFormat("Scores are %s with %d experts; 8 significand bits cannot "
                                        "distinguish them all.",
                                        layer.coarsest.name(), layer.experts))
        .Cause(layer.coarsest.rounded ? "cast-too-late" : "16-bit-scores", 1)
        .Measured(ties ? "tied tokens" : "experts",
                  ties ? layer.share : static_cast<double>(layer.experts), ties ? "share" : "")
        .Threshold(ties ? share_ : static_cast<double>(experts_),
                   ties ? "option tied-share" : "option experts")
        .Samples(ties ? layer.tokens : layer.seen)
        .Fix(
            "Compute the gate in fp32, its product included (Megatron-LM --moe-router-dtype fp32; "
            "Tutel "
            "fp32_gate; Hugging Face: float weights and input of `gate`).");
    return Complete(site, layer, found.Take());
  }

  v1::Verdict Rest(const Layer& layer) const {
    if (layer.coarsest.dtype == v1::DTYPE_UNSPECIFIED) {
      return Inconclusive("dtype-unknown: no evidence contains the dtype of the scores");
    }
    if (layer.seen == 0 && layer.non_finite > 0)
      return Inconclusive("non-finite: every row holds a NaN or infinite score");
    if (!layer.coarsest.half()) {
      return Pass(absl::StrCat("scores are ", layer.coarsest.name()));
    }
    if (!layer.weighed && layer.tokens == 0 && layer.untrained_calls > 0) {
      return Inconclusive(
          "untrained: every token of every call has tied scores, as with a router initialised to "
          "zero");
    }
    if (!layer.weighed) {
      return Inconclusive(absl::StrCat("few-tokens: ", layer.tokens,
                                       " tokens were recorded; the rule needs ", kFewTokens));
    }
    return Pass("few tokens tie in 16 bits");
  }

  static v1::Verdict Complete(const v1::Site& site, const Layer& layer, v1::Verdict verdict) {
    SetPlace(verdict, site.layer(), site.op(), layer.step_first, layer.step_last, layer.ranks);
    google::protobuf::Struct& details = *verdict.mutable_details();
    if (layer.coarsest.dtype != v1::DTYPE_UNSPECIFIED) Put(details, "dtype", layer.coarsest.name());
    Put(details, "experts", static_cast<double>(layer.experts));
    Put(details, "tokens", static_cast<double>(layer.seen));
    Put(details, "tied_share", layer.share);
    Put(details, "non_finite_rows", static_cast<double>(layer.non_finite));
    if (layer.untrained_calls > 0)
      Put(details, "untrained_calls", static_cast<double>(layer.untrained_calls));
    verdict.add_assumptions("the scores were recorded in the dtype in which the router used them");
    return verdict;
  }

  int64_t experts_;
  double share_;
  std::map<std::tuple<v1::Role, std::string, std::string>, Layer> layers_;
};

}  // namespace

CatalogueEntry router_dtype() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RouterDtype>(options);
          }};
}

}  // namespace plumbline::rules
