#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/tensor/tensor.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/loss-mean-of-means

The ranks, or the micro-batches, average their own means although they hold different numbers of tokens: the
loss that is logged, and usually the gradient with it, weighs each token by the rank or micro-batch that holds it.

**Why.** Two ranks with 100 and 900 tokens of mean loss 4 and 2: the mean over tokens is 2.2, the mean of
means 3.0. Every token of the first counts nine times. This is a bias by length, which no single curve
shows and which changes with the batch size, so runs of different sizes are not comparable.

**Bad.** `logged 3.0 is the mean of 2 ranks' means; over the tokens it is 2.2`.

**Good.** Sums and counts are reduced, and divided once.

**How to fix it.**
- Megatron-LM: `--calculate-per-token-loss`. NeMo: the same in its config.
- Hugging Face Trainer: `average_tokens_across_devices=True` and a loss that uses `num_items_in_batch`.
- PyTorch DDP: all-reduce the token count, scale the loss by world_size/Σtokens and use `reduction="sum"`; DDP
  and FSDP divide gradients by the world size. DeepSpeed: the same, `gradient_accumulation_steps` divides too.

**What it checks.** The scalars `loss`, `loss_sum` and `tokens` of one step over all ranks (or the same three
names after a common prefix, as `train/loss`): the logged loss against Σ`loss_sum`/Σ`tokens` and against the
mean of the ranks' means, and of the micro-batches' means where a rank logged several. A finding needs
the logged value to be the latter and not the former, the two being further apart than the rounding of
everything that was logged: (n+4)·2⁻²⁴ of the terms, and half a unit of the last decimal that was kept. Another
value (smoothed, with an auxiliary loss) is sometimes as near by chance: with two decimals
in a few steps of a hundred. So the chance is multiplied over steps until it is below 1e-4 (one step of an
unrounded fp32, some five of two decimals), and a step whose logged value is neither mean undoes two of those findings.

**Strength.** `proved`: exact up to the stated rounding, in steps enough to leave coincidence a chance of 1e-4.

**Inconclusive when** token counts are equal, one rank alone logs sums, the two means are
too close to distinguish, each rank logs its own mean, a rank is missing, the logged value is neither, or it met the mean of
means in too few steps yet.

**Reasons.** `neither`: the logged loss is neither mean;
`coincidence-possible`: the logged loss equals the mean of means, but with so few decimals or steps that
this can be chance; `missing-ranks`: the sums of some ranks are missing; `broken`: a sum or a count is missing,
negative or not finite; `one-sum`: only one rank logs a sum and a count; `equal-counts`: with equal token counts both
means are the same; `no-loss`: no finite loss was logged in a step with several sums; `too-close`: both means are
equal within the rounding of the log; `local`: ranks log their own means.

**What it cannot see.** Gradients that are averaged otherwise than the loss that is logged; smoothing.

**Cost.** Three scalars a rank and step.

**Sources.** Hugging Face, "Fixing Gradient Accumulation", 2024.
)page";

constexpr RuleInfo kInfo = {"precision/loss-mean-of-means",
                            "ranks average means over unequal token counts",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

// Evidence that suffices: ln(1 / probability of a coincidence).
const double kEnough = std::log(1e4);
const double kMiss = 2 * kEnough;

constexpr std::string_view kLoss = "loss", kLossSum = "loss_sum", kTokens = "tokens";

struct Logged {
  uint32_t rank;
  uint32_t call;
  double value;
};

// The three series of one prefix in the open step.
struct Series {
  std::vector<Logged> loss, loss_sum, tokens;
  bool missing = false;  // some rank's value is missing
  bool open = false;     // some value was recorded
  // Clears the series, but keeps their memory for the next step.
  void Close() {
    loss.clear();
    loss_sum.clear();
    tokens.clear();
    missing = open = false;
  }
};

struct Units {
  std::vector<LossUnit> with_tokens;
  size_t without = 0;
  bool broken = false;  // a sum without a count, or invalid values
};

Units Join(const Series& s) {
  Units units;
  std::map<std::pair<uint32_t, uint32_t>, LossUnit> joined;
  for (const Logged& t : s.tokens) joined[{t.rank, t.call}] = {t.rank, t.call, NAN, t.value};
  for (const Logged& sum : s.loss_sum) {
    const auto found = joined.find({sum.rank, sum.call});
    units.broken |= found == joined.end();
    if (found != joined.end()) found->second.loss_sum = sum.value;
  }
  for (const auto& [key, unit] : joined) {
    const bool count = std::isfinite(unit.tokens) && unit.tokens >= 0;
    if (count && unit.tokens == 0) {
      ++units.without;
    } else if (!count || !std::isfinite(unit.loss_sum)) {
      units.broken = true;
    } else {
      units.with_tokens.push_back(unit);
    }
  }
  return units;
}

bool EqualCounts(const Units& units) {
  const auto& all = units.with_tokens;
  return units.without == 0 && std::all_of(all.begin(), all.end(), [&](const LossUnit& u) {
           return u.tokens == all.front().tokens;
         });
}

// Returns what precedes `name` in `op` if it is a prefix: "train/", "train_" and "" are, "sum" in
// "sumloss" is not.
std::optional<std::string> PrefixBefore(std::string_view name, std::string_view op) {
  if (!op.ends_with(name)) return std::nullopt;
  const std::string_view prefix = op.substr(0, op.size() - name.size());
  if (!prefix.empty() && std::isalnum(static_cast<unsigned char>(prefix.back())))
    return std::nullopt;
  return std::string(prefix);
}

class LossMeanOfMeans : public ScalarRule {
 public:
  bool ReadsScalar(const v1::Site& site) const override {
    return PrefixBefore(kLoss, site.op()) || PrefixBefore(kLossSum, site.op()) ||
           PrefixBefore(kTokens, site.op());
  }

  bool judges_unseen_steps() const override { return false; }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Part& part : known_.Of(step, [&] { return PartsOf(step.site); })) {
      for (const Item& item : step.items) {
        if (!item.evidence->has_scalar()) continue;
        Series& series = part.of->second;
        (series.*part.field)
            .push_back(
                {item.source->rank(), item.evidence->call(), item.evidence->scalar().value()});
        series.missing |= !step.missing_ranks.empty();
        if (!std::exchange(series.open, true)) open_.push_back(part.of);
      }
    }
  }

  const void* judges_apart() const override { return this; }
  // Takes all rows if no prefix has all three series (loss, sum, tokens): they give no result.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    std::map<const Of*, std::set<int>> reported;
    for (const ScalarColumn& column : rows.columns) {
      const SiteStep& any = column.any();
      for (const Part& part : known_.Of(any, [&] { return PartsOf(any.site); })) {
        std::set<int>& parts = reported[part.of];
        parts.insert(part.field == &Series::loss ? 0 : part.field == &Series::loss_sum ? 1 : 2);
        if (parts.size() == 3) return 0;
      }
    }
    return rows.size() - first;
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    const auto before = [](const Of* a, const Of* b) { return a->first < b->first; };
    if (!std::is_sorted(open_.begin(), open_.end(), before))
      std::sort(open_.begin(), open_.end(), before);
    JudgeOpen(step, out);
    for (Of* of : open_) of->second.Close();
    open_.clear();
  }

  // open_ is empty between steps. series_ and known_ are recomputed after a restore.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(history_);
  }

 private:
  using Of = std::map<std::pair<std::string, std::string>, Series>::value_type;
  // The role of a site in the series of its layer and prefix.
  struct Part {
    std::vector<Logged> Series::*field;
    Of* of;
  };

  std::vector<Part> PartsOf(const v1::Site& site) {
    std::vector<Part> parts;
    for (const auto& [name, field] :
         {std::pair{kLoss, &Series::loss}, std::pair{kLossSum, &Series::loss_sum},
          std::pair{kTokens, &Series::tokens}}) {
      const std::optional<std::string> prefix = PrefixBefore(name, site.op());
      if (prefix) parts.push_back({field, &*series_.try_emplace({site.layer(), *prefix}).first});
    }
    return parts;
  }

  void JudgeOpen(const StepEnd& step, VerdictSink& out) {
    for (const Of* of : open_) {
      const auto& [key, series] = *of;
      if (series.loss.empty() || series.loss_sum.empty() || series.tokens.empty()) continue;
      Outcome outcome;
      v1::Verdict verdict = Weigh(series, &outcome);
      const double surprise = history_[{step.role, key.first, key.second}].Add(outcome);
      if (verdict.kind() == v1::Verdict::KIND_FINDING && !(surprise >= kEnough)) {
        verdict = Inconclusive(
            "coincidence-possible: the logged loss equals the mean of means, but with so few "
            "decimals, or in so few steps, that this can be a coincidence",
            verdict.details());
      }
      v1::FindingSite& site = *verdict.mutable_site();
      site.set_layer(key.first);
      site.set_op(absl::StrCat(key.second, "loss"));
      site.set_step_first(step.step);
      site.set_step_last(step.step);
      std::set<uint32_t> ranks;
      for (const Logged& sum : series.loss_sum) ranks.insert(sum.rank);
      for (const uint32_t rank : ranks) site.add_ranks(rank);
      out.Add(std::move(verdict));
    }
  }

  // The evidence of one step on a coincidence.
  struct Outcome {
    // ln(1 / probability that the loss equals the mean of means by chance).
    double surprise = 0;
    bool missed = false;  // some logged value was the mean over tokens, or neither mean
    double logged = NAN;  // the logged value that equals the mean of means
  };
  struct History {
    double surprise = 0;
    double logged = NAN;
    void Persist(Archive& a) { a(surprise, logged); }

    // Adds the outcome. If the value is the same as before (one batch, evaluated in each step),
    // adds nothing.
    double Add(const Outcome& outcome) {
      if (outcome.missed) {
        surprise = std::max(surprise - kMiss, -3 * kMiss);
      } else if (outcome.surprise > 0 && outcome.logged != logged) {
        surprise = std::min(surprise + outcome.surprise, 2 * kEnough);
        logged = outcome.logged;
      }
      return surprise;
    }
  };

  static v1::Verdict Weigh(const Series& series, Outcome* outcome) {
    if (series.missing) return Inconclusive("missing-ranks: the sums of some ranks are missing");
    const Units units = Join(series);
    if (units.broken)
      return Inconclusive("broken: a sum or a count is missing, negative or not finite");
    if (units.with_tokens.size() + units.without < 2 || units.with_tokens.empty())
      return Inconclusive("one-sum: only one rank logs a sum and a count");
    if (EqualCounts(units))
      return Inconclusive("equal-counts: with equal token counts both means are the same");
    // A rank may log one value, or one for each micro-batch.
    std::optional<v1::Verdict> best;
    for (const Logged& logged : series.loss) {
      if (!std::isfinite(logged.value)) continue;
      const std::vector<LossUnit> mine = UnitsOf(series, units, logged.call);
      if (mine.size() < 2) continue;
      v1::Verdict verdict = Answer(logged, mine, units.without, outcome);
      if (!best || Rank(verdict) > Rank(*best)) best = std::move(verdict);
    }
    if (!best)
      return Inconclusive("no-loss: no finite loss was logged in a step with several sums");
    return *std::move(best);
  }

  // A loss that is logged once covers the whole step; a loss per micro-batch covers that
  // micro-batch.
  static std::vector<LossUnit> UnitsOf(const Series& series, const Units& units, uint32_t call) {
    const bool each = std::any_of(series.loss.begin(), series.loss.end(),
                                  [](const Logged& l) { return l.call > 0; });
    if (!each) return units.with_tokens;
    std::vector<LossUnit> of_call;
    std::copy_if(units.with_tokens.begin(), units.with_tokens.end(), std::back_inserter(of_call),
                 [&](const LossUnit& u) { return u.call == call; });
    return of_call;
  }

  static int Rank(const v1::Verdict& verdict) {
    return verdict.kind() == v1::Verdict::KIND_FINDING ? 2
           : verdict.kind() == v1::Verdict::KIND_PASS  ? 1
                                                       : 0;
  }

  static v1::Verdict Answer(const Logged& logged, const std::vector<LossUnit>& units,
                            size_t without, Outcome* outcome) {
    const LossComparison c = CompareLoss(logged.value, logged.rank, units, without);
    outcome->missed |= c.kind == LossMean::kTokenMean || c.kind == LossMean::kNeither;
    if (c.kind == LossMean::kMeanOfMeans && -std::log(c.chance) > outcome->surprise) {
      outcome->surprise = -std::log(c.chance);
      outcome->logged = logged.value;
    }
    google::protobuf::Struct details;
    Put(details, "logged", logged.value);
    Put(details, "token_mean", c.token_mean);
    Put(details, "mean_of_means", c.mean_of_means);
    Put(details, "allowance", c.allowance);
    switch (c.kind) {
      case LossMean::kTokenMean:
        return Pass("the logged loss is the mean over all tokens", std::move(details));
      case LossMean::kMeanOfMeans:
        return Found(logged, c, units, std::move(details));
      case LossMean::kBoth:
        return Inconclusive("too-close: the two means are equal within the rounding of the log",
                            std::move(details));
      case LossMean::kLocal:
        return Inconclusive("local: ranks log their own means", std::move(details));
      case LossMean::kNeither:
        break;
    }
    return Inconclusive(
        "neither: the logged loss is neither of the two means (it may be smoothed, scaled, or of "
        "other tokens)",
        std::move(details));
  }

  static v1::Verdict Found(const Logged& logged, const LossComparison& c,
                           const std::vector<LossUnit>& units, google::protobuf::Struct details) {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("the loss is a mean of %s' means", c.over))
        .Explain(absl::StrFormat(
            "Rank %d logs %.9g. The mean of the %s' means is %.9g, the mean over all tokens is "
            "%.9g. The difference is %.2g times the tolerance for rounding.",
            logged.rank, logged.value, c.over, c.mean_of_means, c.token_mean,
            std::abs(logged.value - c.token_mean) / c.allowance))
        .Cause("mean-of-means", 1)
        .Measured("logged loss minus the mean over tokens", logged.value - c.token_mean,
                  "nats per token")
        .Threshold(c.allowance, "rounding of fp32 sums and of the logged decimals")
        .Fix(
            "Reduce sums and token counts, and divide once (Megatron-LM "
            "--calculate-per-token-loss; Hugging Face average_tokens_across_devices=True).")
        .Samples(units.size());
    constexpr size_t kListed = 8;
    for (size_t i = 0; i < std::min(kListed, units.size()); ++i) {
      found.Witness(absl::StrCat("rank ", units[i].rank, " call ", units[i].call),
                    absl::StrFormat("%.9g over %.0f tokens = %.9g", units[i].loss_sum,
                                    units[i].tokens, units[i].mean()));
    }
    *found.verdict().mutable_details() = std::move(details);
    found.verdict().add_assumptions("loss, loss_sum and tokens were logged in fp32 or better");
    return found.Take();
  }

  std::map<std::pair<std::string, std::string>, Series> series_;  // (layer, prefix)
  std::vector<Of*> open_;  // pointers into series_, for this step
  SiteMemo<std::vector<Part>> known_;
  std::map<std::tuple<v1::Role, std::string, std::string>, History> history_;
};

}  // namespace

CatalogueEntry loss_mean_of_means() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<LossMeanOfMeans>();
          }};
}

}  // namespace plumbline::rules
