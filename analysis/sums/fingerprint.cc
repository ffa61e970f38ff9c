#include "analysis/sums/fingerprint.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "analysis/sums/candidates.h"
#include "analysis/sums/fprev.h"
#include "analysis/sums/probes.h"
#include "base/half.h"

namespace plumbline::sums {
namespace {

constexpr const char* kVerdicts[] = {"verified", "order-only", "no-order", "nondeterministic"};
constexpr int kMostAddends = 1 << 20;

std::string Number(double x) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", x);
  return text;
}

absl::Status Checked(const Target& target, const FingerprintOptions& options) {
  if (!target.call)
    return absl::InvalidArgumentError("fingerprint: expected a function, found none");
  if (target.n < 2 || target.n > kMostAddends) {
    return absl::InvalidArgumentError(
        absl::StrCat("fingerprint: expected 2 to ", kMostAddends, " addends, found ", target.n));
  }
  if (!IsFloating(target.input) || !IsFloating(target.output)) {
    return absl::InvalidArgumentError(absl::StrCat("fingerprint: expected floating dtypes, found ",
                                                   DTypeName(target.input), " in and ",
                                                   DTypeName(target.output), " out"));
  }
  if (options.samples < kDistributions || options.repeats < 2) {
    return absl::InvalidArgumentError(absl::StrCat("fingerprint: expected at least ",
                                                   kDistributions, " samples and 2 repeats, found ",
                                                   options.samples, " and ", options.repeats));
  }
  return absl::OkStatus();
}

class Taker {
 public:
  Taker(const Target& target, const FingerprintOptions& options)
      : target_(target), options_(options), prober_(target) {
    out_.name = target.name;
    out_.library = target.library;
    out_.kind = target.kind;
    out_.n = target.n;
    out_.input = target.input;
    out_.output = target.output;
  }

  absl::StatusOr<Fingerprint> Run() {
    const auto determinism = TestDeterminism(&prober_, options_.seed, options_.repeats);
    if (!determinism.ok()) return determinism.status();
    if (absl::Status s = Batches(); !s.ok()) return s;
    if (!determinism->holds) {
      Nondeterministic(*determinism);
      return Finished();
    }
    Test("T0", "determinism",
         absl::StrCat("the same bits in ", determinism->repeats, " calls of 2 inputs"), true);
    if (absl::Status s = Order(options_.seed, 3); !s.ok()) return s;
    if (out_.verdict == Verdict::kOrderOnly && trusted_ > 0) {
      // Some addends were assumed to be single ones without a probe; probe them all.
      if (absl::Status s = Order(options_.seed + 1, 0); !s.ok()) return s;
    }
    return Finished();
  }

 private:
  void Test(const char* id, const char* name, std::string result, bool first = false) {
    TestResult test{id, name, std::move(result)};
    out_.tests.insert(first ? out_.tests.begin() : out_.tests.end(), std::move(test));
  }

  absl::Status Batches() {
    const auto batches = TestBatches(target_, options_.seed);
    if (!batches.ok()) return batches.status();
    if (!batches->tried) return absl::OkStatus();
    batch_ = batches->holds
                 ? "the same bits in batches of 1 to 128"
                 : absl::StrCat("changes: ", Number(batches->alone), " alone, ",
                                Number(batches->batched), " in a batch of ", batches->batch);
    return absl::OkStatus();
  }

  void Nondeterministic(const Determinism& d) {
    out_.verdict = Verdict::kNondeterministic;
    out_.evidence = absl::StrCat("the same addends gave ", Number(d.first),
                                 " in the first call and ", Number(d.second), " in call ", d.call,
                                 ": the function has no fixed order or arithmetic");
    Test("T0", "determinism", out_.evidence);
  }

  // Runs T3 and all tests that depend on it.
  absl::Status Order(uint64_t seed, int trusted_pivots) {
    out_.tests.resize(1);
    odd_.clear();
    SummationTree tree;
    std::vector<SumModel> models;
    if (target_.n == 2) {
      tree = LeftFold(2);
    } else {
      const auto scale = ChooseScale(&prober_, seed);
      if (!scale.ok()) return NoOrder(scale.status());
      if (!scale->masks) {
        models = ExactModels(target_);
        Test("T3", "order", "no addend was lost next to a large one, so the order is not visible");
      } else {
        RevealOptions reveal{seed, trusted_pivots, options_.most_calls};
        const auto revealed = RevealTree(&prober_, *scale, reveal);
        if (!revealed.ok()) return NoOrder(revealed.status());
        tree = revealed->tree;
        trusted_ = revealed->trusted;
        out_.tree_calls = revealed->calls;
      }
    }
    if (models.empty()) {
      Test("T3", "order", TreeInWords(tree));
      auto found = ModelsOf(&prober_, tree, &out_.tests, &odd_);
      if (!found.ok()) return found.status();
      models = *std::move(found);
    }
    return Replayed(models);
  }

  // If the function itself failed, returns its status. If the probes fit no order, sets a verdict.
  absl::Status NoOrder(const absl::Status& status) {
    if (!prober_.failure().ok()) return status;
    out_.verdict = Verdict::kNoOrder;
    out_.evidence = std::string(status.message());
    Test("T3", "order", out_.evidence);
    return absl::OkStatus();
  }

  absl::Status Replayed(const std::vector<SumModel>& models) {
    const auto answers = AnswersOnRandom(&prober_, options_.seed ^ 0x5eed, options_.samples);
    if (!answers.ok()) return answers.status();
    SearchResult search = SearchModel(models, *answers);
    out_.samples = options_.samples;
    out_.matches = search.matches;
    out_.also = std::move(search.also);
    out_.model = std::move(search.model);
    if (!odd_.empty()) search.accepted = false;
    out_.verdict = search.accepted ? Verdict::kVerified : Verdict::kOrderOnly;
    out_.order = TreeInWords(out_.model.tree);
    out_.tree_hash = out_.model.tree.Hash();
    out_.arithmetic = ArithmeticInWords(out_.model);
    out_.rivals = search.accepted ? RivalsOf(out_.model, *answers) : std::vector<Scored>();
    out_.evidence = search.accepted
                        ? ""
                        : absl::StrCat(
                              "the order was found, but no arithmetic gives the results in this "
                              "order: the best, ",
                              out_.arithmetic, ", gives ", out_.matches, " of ", out_.samples);
    if (!odd_.empty()) out_.evidence = odd_;
    Test("T6", "replay", absl::StrCat(out_.matches, " of ", out_.samples, " to the bit"));
    return absl::OkStatus();
  }

  Fingerprint Finished() {
    if (!batch_.empty()) Test("T7", "batch", batch_);
    out_.calls = prober_.calls();
    return std::move(out_);
  }

  const Target& target_;
  const FingerprintOptions& options_;
  Prober prober_;
  Fingerprint out_;
  std::string batch_;
  std::string odd_;  // an addition that rounds unlike the others
  int trusted_ = 0;
};

}  // namespace

const char* VerdictName(Verdict verdict) { return kVerdicts[static_cast<int>(verdict)]; }

bool ParseVerdict(const std::string& name, Verdict* verdict) {
  for (int i = 0; i < 4; ++i) {
    if (name == kVerdicts[i]) {
      *verdict = static_cast<Verdict>(i);
      return true;
    }
  }
  return false;
}

absl::StatusOr<Fingerprint> TakeFingerprint(const Target& target,
                                            const FingerprintOptions& options) {
  if (absl::Status s = Checked(target, options); !s.ok()) return s;
  return Taker(target, options).Run();
}

std::string FingerprintText(const Fingerprint& f) {
  std::string text =
      absl::StrCat(f.name, f.library.empty() ? "" : " of ", f.library, ": ", KindName(f.kind),
                   " of ", f.n, " ", DTypeName(f.input), " to ", DTypeName(f.output), "\n");
  absl::StrAppend(&text, "  verdict     ", VerdictName(f.verdict));
  if (f.samples > 0)
    absl::StrAppend(&text, " (", f.matches, " of ", f.samples, " replayed to the bit)");
  absl::StrAppend(&text, "\n");
  if (!f.evidence.empty()) absl::StrAppend(&text, "  because     ", f.evidence, "\n");
  if (!f.order.empty()) absl::StrAppend(&text, "  order       ", f.order, "\n");
  if (f.verdict == Verdict::kVerified) {
    absl::StrAppend(&text, "  arithmetic  ", f.arithmetic, "\n");
    for (size_t i = 0; i < f.also.size() && i < 3; ++i) {
      absl::StrAppend(&text, "  or          ", f.also[i], "\n");
    }
    for (const Scored& rival : f.rivals) {
      absl::StrAppend(&text, "  not         ", rival.words, " (", rival.matches, " of ", f.samples,
                      ")\n");
    }
  }
  for (const TestResult& test : f.tests) {
    absl::StrAppend(&text, "  ", test.id, " ", test.name,
                    std::string(test.name.size() < 12 ? 12 - test.name.size() : 1, ' '),
                    test.result, "\n");
  }
  absl::StrAppend(&text, "  calls       ", f.calls, ", ", f.tree_calls,
                  " of them to find the order\n");
  return text;
}

}  // namespace plumbline::sums
