#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/batch-facts

A batch that the model is trained on has errors: rows without a label, padding that is learned, ids beyond the vocabulary, labels
shifted twice, inputs that are not finite, or far off those of the batches before.

**Why.** A micro-batch whose labels are all ignored has the loss 0/0: NaN. Padding with labels teaches the model to pad. Labels that
the collator shifted, for a model that shifts them itself, train it to predict the token after the next.

**Bad.** `8 of 8 rows have no valid label: the loss of such a micro-batch is NaN`

**Good.** Each row has a label; padding is -100; labels are a copy of the ids.

**How to fix it.**
- Rows without a label: truncation cut the answer off, or the collator masks all of it (a chat template whose markers do not fit). Filter such rows.
- Padding: give the collator a padding token that is not the end-of-text token, and labels of -100 there.
- Shifted twice: give `labels=input_ids`; the model shifts.
- Far off: compare the batch with earlier ones. Pixels of 0 to 255 where 0 to 1 is usual are 255 times as large.

**What it checks.** `run.watch` looks at the keyword arguments of the model's forward pass (`input_ids`, `labels`, `attention_mask`) in
the first steps, then ever more rarely, and in each step whose loss is NaN. It counts rows (`batch_facts/rows`), rows whose labels are
all -100 (`batch_facts/unlabelled_rows`), labels where the attention mask is 0 (`batch_facts/labelled_padding`), ids and labels outside of the
vocabulary (`batch_facts/beyond_vocabulary`), labels that all are the token after their own, for a causal model of transformers
(`batch_facts/shifted_labels`, from 64 of them on), NaN and infinity in floating inputs (`batch_facts/non_finite`). Floating inputs
may also be passed by position: `argument 0[*,*,16]` is the first, of three axes. `batch_facts/scale:NAME` is the root of the mean square of
an input with more than 8 values (a mask has fewer). A batch is *far off* if this is 30 times above the largest, or
below the least, of at least 4 checked batches before, and if the distance is more than twice their own spread, in
logarithms: a noise level that varies by design has a wide spread, and a curriculum drifts. `batch_facts/constant:NAME` is the number of
rows, if the elements of each row are equal and not zero (an absent input may be zero); it is reported if none of 4 batches before was so. A batch whose
loss jumps is checked too. Of TRL's GRPO and RLOO with a KL term it
counts trained parameters that the reference model shares with the policy (`batch_facts/reference_is_policy`).

**Strength.** `proved`: facts of the batch. `heuristic`, a warning: an input that is far off or constant. Rows without a label are a warning, an error if a whole micro-batch has
none; padding is a warning, the others errors.

**Inconclusive when** a count is NaN or infinite.

**What it cannot see.** Ids and labels that are passed by position; batches that it did not look at; a new kind of batch with another scale, which is far off by design.

**Cost.** A few comparisons of ids and labels in an observed step.

**Sources.** transformers, `DataCollatorForLanguageModeling`; PyTorch, `cross_entropy` ("ignore_index": the mean of nothing is NaN).
)page";

constexpr RuleInfo kInfo = {
    "health/batch-facts", "the batch is malformed", v1::LEVEL_ERROR, "0.3.0", kPage, {}};

struct BatchFact {
  std::string_view series;
  const char* title;
  const char* text;  // the text that follows the count
  const char* fix;
  v1::Level level;
};

constexpr std::string_view kBatchRows = "batch_facts/rows",
                           kBatchUnlabelled = "batch_facts/unlabelled_rows";
constexpr std::array kBatchFacts = {
    BatchFact{kBatchUnlabelled, "rows have no valid label",
              " rows have no label that counts for the loss.",
              "Remove rows whose labels are all -100: the answer was truncated, or the collator "
              "masked all of it.",
              v1::LEVEL_WARNING},
    BatchFact{"batch_facts/labelled_padding", "padding is learned",
              " labels are at positions that the attention mask excludes.",
              "Set labels to -100 where attention_mask is 0.", v1::LEVEL_WARNING},
    BatchFact{"batch_facts/beyond_vocabulary", "token ids are outside the vocabulary",
              " token ids or labels are negative, or at least the size of the vocabulary.",
              "Use the tokenizer of this model, or resize its embeddings.", v1::LEVEL_ERROR},
    BatchFact{"batch_facts/shifted_labels", "labels are shifted twice",
              " labels (all of them) are already shifted by one token, and the model shifts labels "
              "again: it learns to predict the token after the next one.",
              "Pass labels that are a copy of input_ids.", v1::LEVEL_ERROR},
    BatchFact{"batch_facts/non_finite", "inputs are not finite",
              " elements of floating inputs are NaN or infinite.",
              "Find the row in the data and check its normalisation (a variance of 0).",
              v1::LEVEL_ERROR},
    BatchFact{
        "batch_facts/reference_is_policy", "the reference model is the policy itself",
        " trained parameters are shared by the policy and its reference model: the KL divergence "
        "between the two is always 0 and limits nothing.",
        "Make the reference model a copy of the initial policy, and train it with no optimizer.",
        v1::LEVEL_ERROR},
};

// The inputs of one role. Not thread-safe.
class InputScales {
 public:
  static constexpr std::string_view kScale = "batch_facts/scale:",
                                    kConstant = "batch_facts/constant:";
  static constexpr uint64_t kFewest = 4;  // batches before one can be far off
  static constexpr double kFar = 30;      // times the largest, or below the least by this factor
  static constexpr double kSpreads = 2;   // and times the spread of the batches before, in ln
  static constexpr size_t kMostInputs = 256;

  // Takes the values of one rank and step, {series: value}; calls found(verdict) for each input
  // that is far off or constant, once for each input and kind.
  template <typename Values, typename Found>
  void Take(int64_t step, uint32_t rank, const Values& values, Found&& found) {
    for (const auto& [series, value] : values) {
      if (!series.starts_with(kScale) || !(value >= 0) || std::isinf(value)) continue;
      const std::string name = series.substr(kScale.size());
      if (inputs_.size() >= kMostInputs && !inputs_.contains({rank, name})) continue;
      Input& input = inputs_[{rank, name}];
      const auto constant = values.find(std::string(kConstant) + name);
      const bool is_constant = constant != values.end() && constant->second > 0;
      if (input.batches >= kFewest) {
        if (is_constant && !input.constant && FirstOf(name, 1))
          found(Constant(step, rank, name, constant->second, input));
        else if (IsFar(input, value) && FirstOf(name, 2))
          found(Far(step, rank, name, value, input));
      }
      input.constant |= is_constant;
      input.Add(value);
    }
  }

  void Persist(Archive& a) { a(inputs_, reported_); }

 private:
  struct Input {
    uint64_t batches = 0;
    double low = 0, high = 0;  // of the scales above 0
    bool constant = false;     // a batch was constant
    void Add(double value) {
      ++batches;
      if (!(value > 0)) return;
      low = high > 0 ? std::min(low, value) : value;
      high = std::max(high, value);
    }
    void Persist(Archive& a) { a(batches, low, high, constant); }
  };

  // A batch of zeros has no scale: it is constant.
  static bool IsFar(const Input& input, double value) {
    if (!(value > 0) || !(input.low > 0)) return false;
    const double apart = value > input.high  ? std::log(value / input.high)
                         : value < input.low ? std::log(input.low / value)
                                             : 0;
    return apart > std::log(kFar) && apart > kSpreads * std::log(input.high / input.low);
  }

  bool FirstOf(const std::string& name, uint32_t kind) {
    uint32_t& kinds = reported_[name];
    if ((kinds & kind) != 0) return false;
    kinds |= kind;
    return true;
  }

  static v1::Verdict Far(int64_t step, uint32_t rank, const std::string& name, double value,
                         const Input& input) {
    analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("an input is far off those before it")
        .Explain(absl::StrFormat(
            "The input %s has the scale (root of the mean square) %.3g in step %d. In the %d "
            "batches that were checked before, it was %.3g to %.3g.",
            name, value, step, input.batches, input.low, input.high))
        .Cause("scale", 0.8)
        .Measured("scale of the input", value)
        .Threshold(value > input.high ? input.high * kFar : input.low / kFar,
                   "30 times beyond the batches before, and twice their own spread in logarithms")
        .Fix(
            "Compare this batch with earlier ones: is its normalisation missing, or applied twice "
            "(pixels of 0 to 255 for 0 to 1)? Is a row corrupt?");
    return Placed(step, rank, name, value, input, found);
  }

  static v1::Verdict Constant(int64_t step, uint32_t rank, const std::string& name, double rows,
                              const Input& input) {
    analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("an input is constant")
        .Explain(absl::StrFormat(
            "In step %d all elements of a row of the input %s are equal, in each of the %.0f rows. "
            "None of the %d batches that were checked before was like this.",
            step, name, rows, input.batches))
        .Cause("constant", 0.8)
        .Measured("rows with equal elements", rows, "rows")
        .Threshold(0, "earlier batches vary within a row")
        .Fix(
            "Look at the rows of this batch: a file that cannot be read, a decoder that returns "
            "an empty image, a mask that covers all of it.");
    return Placed(step, rank, name, rows, input, found);
  }

  static v1::Verdict Placed(int64_t step, uint32_t rank, const std::string& name, double value,
                            const Input& input, analysis::FindingBuilder& found) {
    found.Samples(input.batches)
        .Witness("input", name)
        .Witness("step", static_cast<double>(step))
        .Witness("value", value)
        .Witness("least scale before", input.low)
        .Witness("largest scale before", input.high)
        .At("", std::string(kScale) + name, step, step, std::vector<uint32_t>{rank});
    return found.Take();
  }

  std::map<std::pair<uint32_t, std::string>, Input> inputs_;  // by rank and name
  std::map<std::string, uint32_t> reported_;                  // by name: 1 constant, 2 far off
};

class BatchFacts : public ScalarRule {
 public:
  explicit BatchFacts(const Options& /*options*/) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return site.op().starts_with("batch_facts/");
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar() || !ReadsScalar(step.site)) continue;
      open_[item.source->rank()][step.site.op()] = item.evidence->scalar().value();
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (!open_.empty()) looks_.See(step.step);
    for (const auto& [rank, values] : open_) {
      ++batches_;
      for (size_t i = 0; i < kBatchFacts.size(); ++i) {
        const auto count = values.find(std::string(kBatchFacts[i].series));
        if (count == values.end()) continue;
        if (!std::isfinite(count->second)) ++unusable_;
        if (!(count->second > 0) || std::isinf(count->second)) continue;
        const auto rows = values.find(std::string(kBatchRows));
        Report(i, step.step, rank, count->second, rows == values.end() ? 0 : rows->second, out);
      }
      scales_.Take(step.step, rank, values, [&](v1::Verdict verdict) {
        far_off_ = true;
        out.Add(std::move(verdict));
      });
    }
    open_.clear();
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    if (reported_ != 0 || far_off_ || batches_ == 0) return;
    v1::Verdict verdict = unusable_ > 0
                              ? Inconclusive("poisoned: a count is NaN or infinite")
                              : Pass(absl::StrFormat("%d batches were checked", batches_));
    SetPlace(verdict, "", "batch", run.step_first, run.step_last, std::vector<uint32_t>{});
    if (looks_.any()) looks_.Put(&verdict);
    out.Add(std::move(verdict));
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(3, 1);
    archive(reported_, batches_, unusable_);
    if (version >= 2) archive(looks_);
    if (version >= 3) archive(scales_, far_off_);
  }

 private:
  // Reports each fact once. If a step later has no label in any row, reports that once more.
  void Report(size_t i, int64_t step, uint32_t rank, double count, double rows, VerdictSink& out) {
    const BatchFact& fact = kBatchFacts[i];
    const bool none = fact.series == kBatchUnlabelled && rows > 0 && count >= rows;
    const uint64_t bit = uint64_t{1} << (none ? kBatchFacts.size() : i);
    if ((reported_ & bit) != 0) return;
    reported_ |= bit;
    FindingBuilder found(none ? v1::LEVEL_ERROR : fact.level, v1::STRENGTH_PROVED);
    std::string text = absl::StrFormat("%.0f%s", count, fact.text);
    if (none) text += " No row of the step has one, so the loss of such a micro-batch is NaN.";
    found.Title(fact.title)
        .Explain(text)
        .Cause("data", 0.95)
        .Measured("elements or rows", count)
        .Threshold(0, "a valid batch has none")
        .Samples(1)
        .Witness("rows", rows)
        .Fix(fact.fix)
        .At("", std::string(fact.series), step, step, std::vector<uint32_t>{rank});
    out.Add(found.Take());
  }

  std::map<uint32_t, std::map<std::string, double>> open_;  // rank -> series, for this step
  uint64_t reported_ = 0;                                   // one bit per fact
  StepLooks looks_;
  InputScales scales_;
  bool far_off_ = false;  // a finding on a scale was made
  uint64_t batches_ = 0, unusable_ = 0;
};

}  // namespace

CatalogueEntry batch_facts() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<BatchFacts>(options);
          }};
}

}  // namespace plumbline::rules
