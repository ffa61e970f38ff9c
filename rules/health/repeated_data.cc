#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/batches/batches.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/repeated-data

The run is trained on batches that it has learned before: after a resume the data begin again, each epoch has the same order, or all
workers of a data loader return the same batches.

**Why.** A resume that restores the model but not the sampler trains the first part of the data twice and the last part never. An epoch
in the order of the one before lets the model memorise the order. If 4 workers return the same batches, each is trained 4 times. The
loss looks better, not worse.

**Bad.** `the batches of steps 400 to 407, after a resume, are those of steps 0 to 7 in the same order`

**Good.** After a resume at step 400 the data of step 400 follow. Each epoch has another order.

**How to fix it.**
- PyTorch: save and load the sampler's state, or skip the batches of the epoch that were trained (`skip_first_batches` of Accelerate;
  `StatefulDataLoader` of torchdata; `resume_from_checkpoint` of the Trainer without `ignore_data_skip`).
- `sampler.set_epoch(epoch)` at the beginning of each epoch; no `manual_seed` of the same number there.
- Workers: split an `IterableDataset` by `torch.utils.data.get_worker_info()`; seed generators of a dataset by `worker_init_fn`, not in `__init__`.
- If the run repeats data on purpose: `--set health/repeated-data.repeats=declared`.

**What it checks.** `run.watch` computes a digest of the token ids of each micro-batch that is trained on (`batch_digest/high` and `batch_digest/low`, 32 bits each; decision 0125).
The order of rows, micro-batches and ranks has no influence on it. One equal digest is no finding: consecutive steps must have the
digests of earlier consecutive steps, in the same order.
- *After a resume*: the first 8 steps of a process are earlier steps, the last of them at least 8 steps before the resume. It is a finding if
  the process before had other data in the steps of the same numbers, or if the data loader's length (`batch_digest/epoch`,
  `batch_digest/batches` a step) shows that no epoch ends at the resume.
- *Order*: at least 32 steps repeat those of one epoch before, and as many as the epoch has, up to 256; an epoch of 4 steps at least. It is a finding only if
  the sampler shuffles (`batch_digest/shuffles`: `RandomSampler`, `DistributedSampler(shuffle=True)`).
- *Workers*: in the first 16 rounds all workers of a loader returned the same batch (`batch_digest/rounds`, `batch_digest/equal_rounds`), although each round had
  another batch and other indices.

Two ranks with the same rows are a finding of health/same-data.

**Strength.** `proved`: equal digests, of 8 steps in order at least. The keys are random and fixed. Two rows with ids below 2^17 have one digest with a chance
of at most 2^-47 (never, if one id differs).

**Inconclusive when** the first batches after a resume came before, and the evidence does not show whether an epoch ended there; when a
half of a digest is not a whole number below 2^32.

**What it cannot see.** Data that are shuffled again after a resume; single rows, and batches of one row after the first epoch; an evaluation's rows in the training data; models without token ids
(integers with two axes) and runs with `redact=True`; steps that are recorded without hooks (light steps of small models on a CPU); a process whose steps count from 0 again. Of long runs
the newest 262,144 steps are kept at least. Batches of more than 4,096 ids on a CPU are sampled by rows.

**Cost.** In the trainer 5 to 10 us a micro-batch (up to 50 if the trainer has filled the caches), 2 us a step; 24 bytes a step, at most 12 MB a run.

**Sources.** PyTorch, `DistributedSampler.set_epoch`, `IterableDataset`; M. Thorup, "High speed hashing for integers and strings" (multiply-shift).
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "repeats",
     .type = OptionInfo::Type::kChoice,
     .unit = "",
     .default_value = "none",
     .reason = "declared: the run repeats batches on purpose",
     .choices = "none|declared"},
};

constexpr RuleInfo kInfo = {"health/repeated-data",
                            "batches come again: after a resume, in each epoch, from each worker",
                            v1::LEVEL_ERROR,
                            "0.2.0",
                            kPage,
                            kOptions};

constexpr std::string_view kDigestPrefix = "batch_digest/";
constexpr std::string_view kIgnoresSkip = "settings/ignore_data_skip";  // of transformers
constexpr uint64_t kResumedSteps = 8;  // steps in order that show a resume
constexpr int64_t kResumeMargin = 8;   // steps between the newest of these and the resume
constexpr uint64_t kKnownSteps = 4;    // of these: steps that the process before had reached
constexpr int64_t kLeastEpoch = 4;     // steps
constexpr int64_t kLeastOrder = 32, kMostOrder = 256;  // steps in the order of an epoch before
constexpr double kWorkerRounds = 16;
constexpr size_t kMostLoaders = 8;

// Facts on the data loader of one attempt. NaN: not known.
struct LoaderFacts {
  double epoch = NAN;     // micro-batches
  double batches = NAN;   // micro-batches per step
  double shuffles = NAN;  // 1: the sampler shuffles
  void Persist(Archive& a) { a(epoch, batches, shuffles); }
};

// The data that the ranks of one role were trained on.
struct TrainedBatches {
  BatchHistory history;
  std::map<uint32_t, LoaderFacts> loaders;  // by attempt
  uint32_t attempt = 0;
  int64_t first = -1;   // first step of the attempt with a digest
  int64_t begins = -1;  // first such step of the newest training in it
  uint64_t ranks = 0;   // the most ranks of a step of the attempt
  bool resume_judged = false, reported = false;
  bool declared = false, unclear = false, fixed = false;
  uint64_t unusable = 0;
  StepLooks looks;
  void Persist(Archive& a) {
    a(history, loaders, attempt, first, begins, ranks, resume_judged, reported);
    a(declared, unclear, fixed, unusable, looks);
  }

  // The newest one counts; of earlier attempts the longest epoch, because a loader that skips the
  // first batches is shorter.
  LoaderFacts Earlier() const {
    LoaderFacts facts;
    for (const auto& [number, one] : loaders) {
      if (number >= attempt || !(one.epoch > 0)) continue;
      if (!(facts.epoch >= one.epoch)) facts = one;
    }
    return facts;
  }
};

class RepeatedData : public ScalarRule {
 public:
  explicit RepeatedData(const Options& options)
      : declared_(options.Choice("repeats") == "declared") {}

  bool ReadsScalar(const v1::Site& site) const override {
    return site.op().starts_with(kDigestPrefix) || site.op() == kIgnoresSkip;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    if (!ReadsScalar(step.site)) return;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      open_[step.site.op()][item.source->rank()] = item.evidence->scalar().value();
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (open_.empty()) return;
    TrainedBatches& t = roles_[step.role];
    if (t.first < 0 || t.attempt != step.attempt) {
      t.attempt = step.attempt;
      t.first = t.begins = -1;
      t.ranks = 0;
      t.resume_judged = false;
    }
    TakeFacts(t);
    if (const std::optional<uint64_t> digest = Digest(t)) Take(step, *digest, t, out);
    if (Fact("rounds") >= kWorkerRounds) JudgeWorkers(step, t, out);
    open_.clear();
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [role, t] : roles_) {
      if (t.reported || (t.history.size() == 0 && t.unusable == 0)) continue;
      v1::Verdict verdict = Rest(t);
      Put(*verdict.mutable_details(), "forgotten", static_cast<double>(t.history.forgotten()));
      SetPlace(verdict, "", "data", 0, 0, std::vector<uint32_t>{});
      if (t.looks.any()) t.looks.Put(&verdict);
      out.Add(std::move(verdict));
    }
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(roles_);
  }

 private:
  // Returns the largest value of a fact over the ranks. NaN: not reported.
  double Fact(std::string_view name) const {
    const auto found = open_.find(std::string(kDigestPrefix).append(name));
    double value = NAN;
    if (found == open_.end()) return value;
    for (const auto& [rank, one] : found->second) {
      if (!(value >= one)) value = one;
    }
    return value;
  }

  void TakeFacts(TrainedBatches& t) {
    const auto ignores = open_.find(std::string(kIgnoresSkip));
    if (ignores != open_.end() && ignores->second.begin()->second == 1) t.declared = true;
    const double epoch = Fact("epoch"), batches = Fact("batches"), shuffles = Fact("shuffles");
    if (std::isnan(epoch) && std::isnan(batches) && std::isnan(shuffles)) return;
    LoaderFacts& facts = t.loaders[t.attempt];
    if (epoch > 0) facts.epoch = epoch;
    if (batches > 0 && !(facts.batches <= batches)) facts.batches = batches;
    if (!std::isnan(shuffles)) facts.shuffles = shuffles;
    if (t.loaders.size() > kMostLoaders) t.loaders.erase(t.loaders.begin());
  }

  // Returns the digest of the step's data over all ranks. Returns nothing if a rank that was there
  // before is missing, or if there were only empty rows.
  std::optional<uint64_t> Digest(TrainedBatches& t) const {
    const auto high = open_.find("batch_digest/high"), low = open_.find("batch_digest/low");
    if (high == open_.end() || low == open_.end()) return std::nullopt;
    uint64_t digest = 0, ranks = 0;
    for (const auto& [rank, upper] : high->second) {
      const auto lower = low->second.find(rank);
      if (lower == low->second.end()) return std::nullopt;
      const std::optional<uint64_t> whole = WholeDigest(upper, lower->second);
      if (!whole) {
        ++t.unusable;
        return std::nullopt;
      }
      digest += *whole;
      ++ranks;
    }
    const bool complete = ranks >= t.ranks;
    t.ranks = std::max(t.ranks, ranks);
    return complete && digest != 0 ? std::optional(digest) : std::nullopt;
  }

  void Take(const StepEnd& step, uint64_t digest, TrainedBatches& t, VerdictSink& out) const {
    if (t.first < 0) t.first = t.begins = step.step;
    if (Fact("begins") > 0) t.begins = step.step;
    t.looks.See(step.step);
    const BatchStreak& streak = t.history.Add(step.attempt, step.step, digest);
    if (streak.steps == 0) return;
    if (streak.attempt < step.attempt) {
      if (!t.resume_judged && streak.fresh >= kResumedSteps) JudgeResume(t, streak, out);
    } else {
      JudgeOrder(t, streak, out);
    }
  }

  // Judges the first steps after a resume, which repeat earlier ones.
  void JudgeResume(TrainedBatches& t, const BatchStreak& streak, VerdictSink& out) const {
    t.resume_judged = true;
    if (streak.now > t.first + 1 || streak.then_last + kResumeMargin > t.first) return;
    uint64_t known = 0, other = 0;
    for (int64_t n = streak.now; n <= streak.now_last && n < streak.now + 64; ++n) {
      const std::optional<uint64_t> before = t.history.Before(t.attempt, n);
      const std::optional<uint64_t> now = t.history.Before(t.attempt + 1, n);
      if (!before || !now) continue;
      ++known;
      other += *before != *now ? 1 : 0;
    }
    if (known >= kKnownSteps && other < known) return;  // the data go on as they did before
    const LoaderFacts loader = t.Earlier();
    const bool shorter = !MayEndEpoch(t.first - streak.then, loader.epoch, loader.batches);
    if (known < kKnownSteps && !shorter) {
      t.unclear = true;
      return;
    }
    if (Declared(t) || t.reported) return;
    t.reported = true;
    out.Add(Resumed(t, streak, known, loader));
  }

  void JudgeOrder(TrainedBatches& t, const BatchStreak& streak, VerdictSink& out) const {
    const int64_t lag = streak.now - streak.then;
    if (lag < kLeastEpoch || streak.then < t.begins) return;
    if (static_cast<int64_t>(streak.fresh) < std::clamp(lag, kLeastOrder, kMostOrder)) return;
    const auto loader = t.loaders.find(t.attempt);
    const bool shuffles = loader != t.loaders.end() && loader->second.shuffles == 1;
    t.fixed = true;
    if (!shuffles || Declared(t) || t.reported) return;
    t.reported = true;
    out.Add(SameOrder(streak, lag));
  }

  void JudgeWorkers(const StepEnd& step, TrainedBatches& t, VerdictSink& out) const {
    const double rounds = Fact("rounds"), workers = Fact("workers");
    if (!(Fact("equal_rounds") >= rounds) || !std::isfinite(rounds) || !(workers >= 2)) return;
    if (Declared(t) || t.reported) return;
    t.reported = true;
    out.Add(EqualWorkers(step, workers, rounds));
  }

  bool Declared(const TrainedBatches& t) const { return declared_ || t.declared; }

  v1::Verdict Rest(const TrainedBatches& t) const {
    if (t.unclear)
      return Inconclusive(
          "epoch-unknown: the first batches after a resume came before, and it is not known "
          "whether "
          "an epoch ended there");
    if (t.unusable > 0)
      return Inconclusive("poisoned: a half of a digest is not a whole number below 2^32");
    if (Declared(t)) return Pass("the run is declared to repeat batches");
    if (t.fixed) return Pass("batches come again in a fixed order, and no sampler shuffles");
    return Pass("no steps repeat the data of earlier steps in order");
  }

  static v1::Verdict Resumed(const TrainedBatches& t, const BatchStreak& streak, uint64_t known,
                             const LoaderFacts& loader) {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    std::string text = absl::StrFormat(
        "The batches of steps %d to %d, after a resume, are those of steps %d to %d in the same "
        "order. ",
        streak.now, streak.now_last, streak.then, streak.then_last);
    if (known >= kKnownSteps) {
      text += absl::StrFormat("The process before had other batches in %d of these steps.", known);
    } else {
      text += absl::StrFormat(
          "An epoch has %.0f micro-batches, and a step takes %.0f: no epoch ended there.",
          loader.epoch, loader.batches);
      found.Assume("each epoch of the data loader is as long as it states");
    }
    return found.Title("after a resume the data begin again")
        .Explain(text)
        .Cause("sampler-not-restored", 0.9)
        .Measured("steps in the same order", static_cast<double>(streak.fresh), "steps")
        .Threshold(static_cast<double>(kResumedSteps), "steps; eight equal digests")
        .Samples(streak.fresh)
        .Witness("step", static_cast<double>(streak.now))
        .Witness("step_before", static_cast<double>(streak.then))
        .Fix(
            "Restore the sampler with the model, or skip the batches that were trained "
            "(skip_first_batches, StatefulDataLoader, no ignore_data_skip).")
        .At("", "data/resume", t.first, streak.now_last, std::vector<uint32_t>{})
        .Take();
  }

  static v1::Verdict SameOrder(const BatchStreak& streak, int64_t lag) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    return found.Title("each epoch has the same order")
        .Explain(absl::StrFormat("The batches of steps %d to %d are those of steps %d to %d in the "
                                 "same order, %d steps later, although the sampler shuffles.",
                                 streak.now, streak.now_last, streak.then, streak.then_last, lag))
        .Cause("epoch-not-set", 0.9)
        .Measured("steps in the same order", static_cast<double>(streak.fresh), "steps")
        .Threshold(static_cast<double>(std::clamp(lag, kLeastOrder, kMostOrder)),
                   "steps, at most an epoch")
        .Samples(streak.fresh)
        .Witness("step", static_cast<double>(streak.now))
        .Witness("step_before", static_cast<double>(streak.then))
        .Fix("Call sampler.set_epoch(epoch) at the beginning of each epoch, and set no seed there.")
        .At("", "data/order", streak.now, streak.now_last, std::vector<uint32_t>{})
        .Take();
  }

  static v1::Verdict EqualWorkers(const StepEnd& step, double workers, double rounds) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    return found.Title("all workers of the data loader return the same batches")
        .Explain(absl::StrFormat("In each of %.0f rounds all %.0f workers returned the same batch, "
                                 "and the rounds differ: each batch is trained %.0f times.",
                                 rounds, workers, workers))
        .Cause("equal-workers", 0.9)
        .Measured("rounds with equal batches", rounds, "rounds")
        .Threshold(kWorkerRounds, "rounds")
        .Samples(static_cast<uint64_t>(rounds))
        .Witness("workers", workers)
        .Fix(
            "Split an IterableDataset by torch.utils.data.get_worker_info(); seed generators of a "
            "dataset in worker_init_fn.")
        .At("", "data/workers", step.step, step.step, std::vector<uint32_t>{})
        .Take();
  }

  std::map<std::string, std::map<uint32_t, double>> open_;  // by series and rank, of this step
  std::map<v1::Role, TrainedBatches> roles_;
  bool declared_;
};

}  // namespace

CatalogueEntry repeated_data() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RepeatedData>(options);
          }};
}

}  // namespace plumbline::rules
