#include "analysis/routing/intervention/check_router.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/routing/intervention/inputs.h"

namespace plumbline::analysis {
namespace {

using intervention::kMethods;
using intervention::Method;
using intervention::Sequence;

class Checker {
 public:
  Checker(const RouterCall& router, const RouterInputs& inputs, const CheckOptions& options)
      : router_(router), inputs_(inputs), options_(options) {}

  absl::StatusOr<RouterCheck> Run() {
    sequences_ = intervention::Sequences(inputs_);
    ListAssumptions();
    for (auto step :
         {&Checker::Base, &Checker::Suffixes, &Checker::OtherSequences, &Checker::Again}) {
      if (nondeterministic_) break;
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    check_.row = RowOf();
    if (cut_short_) {
      check_.assumptions.push_back(absl::StrCat("the sweep ended early: at most ",
                                                options_.max_calls, " calls were allowed"));
    }
    if (nondeterministic_) check_.witness = {};
    return std::move(check_);
  }

 private:
  using Row = RouterCheck::Row;

  // One trial: the sequence whose rows are replaced from a row on, and the one whose assignments
  // are compared.
  struct Trial {
    size_t changed, watched;  // indices into sequences_
    size_t from;              // index into the changed one's rows; the compared ones come before
    Method method;
    FlipShare* share;
  };

  void ListAssumptions() {
    if (inputs_.sequence.empty())
      check_.assumptions.push_back("all rows belong to one sequence (no sequence_id was given)");
    if (inputs_.position.empty())
      check_.assumptions.push_back("rows are in time order (no position was given)");
    if (inputs_.rank.empty())
      check_.assumptions.push_back("tokens of other ranks were not varied (rows of one rank)");
  }

  absl::StatusOr<Assignments> Call(const std::vector<double>& logits, const std::string& what) {
    ++check_.calls;
    const std::string where = absl::StrCat("call ", check_.calls, " (", what, ")");
    auto answer = router_(logits);
    if (!answer.ok()) {
      return absl::Status(answer.status().code(),
                          absl::StrCat(where, ": ", std::string(answer.status().message())));
    }
    if (answer->size() != inputs_.logits.size()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the router returned ",
                                                     answer->size(), " results; expected [",
                                                     inputs_.tokens, ", ", inputs_.experts, "]"));
    }
    return answer;
  }

  absl::Status Base() {
    auto base = Call(inputs_.logits, "the original batch");
    if (!base.ok()) return base.status();
    base_ = std::move(*base);
    return Again();
  }

  // Runs the unchanged batch once more, because a router with state may drift.
  absl::Status Again() {
    auto again = Call(inputs_.logits, "the original batch, again");
    if (!again.ok()) return again.status();
    nondeterministic_ |= *again != base_;
    return absl::OkStatus();
  }

  // Tries every target, cut and kind of replacement. If there are too few calls, an even sample of
  // them.
  absl::Status Suffixes() {
    std::vector<Trial> trials;
    for (size_t s : intervention::Spread(sequences_.size(), Targets())) {
      const auto length = static_cast<int64_t>(sequences_[s].rows.size());
      for (int64_t cut : intervention::Cuts(length)) {
        for (Method method : kMethods)
          trials.push_back({s, s, static_cast<size_t>(cut), method, &check_.future});
      }
    }
    // A quarter of the calls is reserved for the effect of other sequences.
    const int64_t most =
        sequences_.size() > 1 ? options_.max_calls - options_.max_calls / 4 : options_.max_calls;
    return TryAll(std::move(trials), most - check_.calls - kReserve);
  }

  absl::Status OtherSequences() {
    std::map<FlipShare*, std::vector<Trial>> kinds;
    for (size_t s : intervention::Spread(sequences_.size(), Targets())) {
      for (size_t o : intervention::Spread(sequences_.size(), 2 * Targets())) {
        if (o == s) continue;
        const bool elsewhere = sequences_[o].rank != sequences_[s].rank;
        FlipShare* share = elsewhere ? &check_.other_rank : o < s ? &check_.earlier : &check_.later;
        for (Method method : kMethods) kinds[share].push_back({o, s, 0, method, share});
      }
    }
    for (FlipShare* share : {&check_.other_rank, &check_.later, &check_.earlier}) {
      const auto left = static_cast<int64_t>(kinds.size());
      if (kinds.count(share) == 0) continue;
      absl::Status status =
          TryAll(std::move(kinds[share]), (options_.max_calls - check_.calls - kReserve) / left);
      if (!status.ok()) return status;
      kinds.erase(share);
    }
    return absl::OkStatus();
  }

  absl::Status TryAll(std::vector<Trial> trials, int64_t most) {
    const auto n = static_cast<int64_t>(trials.size());
    cut_short_ |= n > most;
    const int64_t taken = std::min(n, most);
    for (int64_t i = 0; i < taken && !nondeterministic_; ++i) {
      // Spread over the list, which alternates the kinds of replacement, so that each is used
      // equally often.
      const int64_t spread = i * n / taken;
      const int64_t at = n < 2 * taken ? spread : spread / kTurns * kTurns + i % kTurns;
      if (absl::Status status = Try(trials[static_cast<size_t>(std::min(at, n - 1))]); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  size_t Targets() const { return static_cast<size_t>(std::max(1, options_.max_sequences)); }

  absl::Status Try(const Trial& trial) {
    const bool suffix = trial.share == &check_.future;
    const std::vector<int32_t>& changed = sequences_[trial.changed].rows;
    const std::vector<int32_t>& watching = sequences_[trial.watched].rows;
    const auto cut = static_cast<std::ptrdiff_t>(trial.from);
    const std::vector<int32_t> rows(changed.begin() + cut, changed.end());
    const std::vector<int32_t> watched(watching.begin(),
                                       suffix ? watching.begin() + cut : watching.end());
    if (!replacement_.has_value()) replacement_.emplace(inputs_, base_, options_);
    const std::vector<double> logits = replacement_->Make(trial.method, rows, watched, turn_++);
    const std::string what = What(trial);
    auto answer = Call(logits, what);
    if (!answer.ok()) return answer.status();
    ++trial.share->tried;
    const int32_t moved = FirstMoved(*answer, watched);
    if (moved < 0) return absl::OkStatus();
    ++trial.share->flipped;
    if (check_.witness.found() && (!suffix || future_witness_)) return absl::OkStatus();
    future_witness_ |= suffix;
    SetWitness(trial, moved, *answer);
    return Confirm(logits, *answer, what);
  }

  // The flip must be reproducible, and the unchanged batch must still give the same result.
  absl::Status Confirm(const std::vector<double>& logits, const Assignments& seen,
                       const std::string& what) {
    for (int i = 0; i < 2; ++i) {
      if (absl::Status status = Again(); !status.ok()) return status;
      auto answer = Call(logits, what + ", again");
      if (!answer.ok()) return answer.status();
      nondeterministic_ |= *answer != seen;
    }
    return absl::OkStatus();
  }

  int64_t PositionOf(int32_t row) const {
    return inputs_.position.empty() ? row : inputs_.position[static_cast<size_t>(row)];
  }

  std::string What(const Trial& trial) const {
    const std::string by = intervention::Describe(trial.method);
    const Sequence& changed = sequences_[trial.changed];
    if (trial.from == 0) return absl::StrCat("all of sequence ", changed.id, " replaced by ", by);
    return absl::StrCat("the tokens from position ", PositionOf(changed.rows[trial.from]),
                        " of sequence ", changed.id, " replaced by ", by);
  }

  size_t At(int32_t row, int32_t expert) const {
    return static_cast<size_t>(row) * static_cast<size_t>(inputs_.experts) +
           static_cast<size_t>(expert);
  }

  int32_t FirstMoved(const Assignments& now, const std::vector<int32_t>& watched) const {
    for (int32_t row : watched) {
      for (int32_t e = 0; e < inputs_.experts; ++e) {
        if (now[At(row, e)] != base_[At(row, e)]) return row;
      }
    }
    return -1;
  }

  void SetWitness(const Trial& trial, int32_t row, const Assignments& now) {
    FlipWitness w;
    w.token = row;
    w.sequence = sequences_[trial.watched].id;
    w.position = PositionOf(row);
    w.changed_sequence = sequences_[trial.changed].id;
    w.cut = PositionOf(sequences_[trial.changed].rows[trial.from]);
    for (int32_t e = 0; e < inputs_.experts; ++e) {
      const uint8_t before = base_[At(row, e)], after = now[At(row, e)];
      if (w.lost < 0 && before == 1 && after != 1) w.lost = e;
      if (w.gained < 0 && after == 1 && before != 1) w.gained = e;
    }
    std::string fate = w.lost >= 0 ? absl::StrCat("lost expert ", w.lost) : "";
    if (w.gained >= 0)
      absl::StrAppend(&fate, fate.empty() ? "" : " and ", "gained expert ", w.gained);
    w.text =
        absl::StrFormat("token %d (sequence %d, position %d) %s with %s", row, w.sequence,
                        w.position, fate.empty() ? "was assigned differently" : fate, What(trial));
    check_.witness = std::move(w);
  }

  Row RowOf() const {
    if (nondeterministic_) return Row::kNondeterministic;
    if (check_.future.flipped > 0) return Row::kFutureLeak;
    if (check_.earlier.flipped + check_.later.flipped + check_.other_rank.flipped > 0)
      return Row::kBatchDependent;
    return check_.future.tried > 0 ? Row::kClean : Row::kNotTried;
  }

  static constexpr int64_t kTurns = std::size(kMethods);
  static constexpr int64_t kReserve = 6;  // calls to confirm a flip and the unchanged batch

  const RouterCall& router_;
  const RouterInputs& inputs_;
  const CheckOptions& options_;
  std::vector<Sequence> sequences_;
  Assignments base_;
  std::optional<intervention::Replacement> replacement_;  // set when the base is known
  size_t turn_ = 0;
  bool nondeterministic_ = false;
  bool future_witness_ = false;
  bool cut_short_ = false;
  RouterCheck check_;
};

std::string ShareText(const char* what, const FlipShare& share) {
  if (share.tried == 0) return absl::StrCat(what, " not tried");
  return absl::StrFormat("%s %d of %d", what, share.flipped, share.tried);
}

}  // namespace

const char* RouterCheck::row_name() const {
  switch (row) {
    case Row::kClean:
      return "clean";
    case Row::kBatchDependent:
      return "batch-dependent";
    case Row::kFutureLeak:
      return "future-leak";
    case Row::kNondeterministic:
      return "nondeterministic";
    default:
      return "not-tried";
  }
}

std::string RouterCheck::Explanation() const {
  if (row == Row::kNondeterministic) {
    return absl::StrFormat(
        "The router is not repeatable: the same batch with the same seeds was routed in two ways "
        "(%d calls). Fix its seeds, and the state that it keeps between calls, and check again.",
        calls);
  }
  if (row == Row::kNotTried) {
    return "No suffix was replaced: no sequence has two tokens other than padding, or too few "
           "calls were allowed.";
  }
  const char* meaning = row == Row::kFutureLeak
                            ? "An assignment depends on later tokens of its own sequence"
                        : row == Row::kBatchDependent
                            ? "An assignment depends on other sequences of the batch, not on later "
                              "tokens of its own"
                            : "No assignment changed";
  return absl::StrFormat(
      "%s (%d calls). Interventions that changed one: %s; %s; %s; %s.", meaning, calls,
      ShareText("later tokens", future), ShareText("an earlier sequence", earlier),
      ShareText("a later sequence", later), ShareText("another rank", other_rank));
}

absl::StatusOr<RouterCheck> CheckRouter(const RouterCall& router, const RouterInputs& inputs,
                                        const CheckOptions& options) {
  if (absl::Status status = intervention::CheckInputs(inputs); !status.ok()) return status;
  if (options.max_calls < 8)
    return absl::InvalidArgumentError(
        absl::StrCat("max_calls is ", options.max_calls, "; expected 8 or more"));
  return Checker(router, inputs, options).Run();
}

}  // namespace plumbline::analysis
