#include "analysis/rollout/missing.h"

#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kFewestMissing = 8;
constexpr double kMissingDeviations = 5, kUntestedShare = 1e-3;

}  // namespace

void MissingValues::Add(const RolloutToken& t) {
  const bool train = std::isfinite(t.train), rollout = std::isfinite(t.rollout);
  if (train && rollout) {
    both_train_.Add(t.train);
    both_rollout_.Add(t.rollout);
  } else if (train) {
    no_rollout_.Add(t.train);
  } else if (rollout) {
    // A log pi of -infinity counts as a value.
    if (std::isnan(t.train)) no_train_.Add(t.rollout);
  } else {
    ++neither_;
  }
}

bool MissingValues::Differ(const Cell& missing, const Cell& both) {
  if (missing.n < kFewestMissing || both.n < kFewestMissing) return false;
  const double error = std::sqrt(missing.square_error() + both.square_error());
  return std::fabs(missing.mean() - both.mean()) > kMissingDeviations * error;
}

bool MissingValues::Untested() const {
  const auto all = static_cast<double>(both_train_.n + count());
  return neither_ >= kFewestMissing && static_cast<double>(neither_) > kUntestedShare * all;
}

bool MissingValues::depend() const {
  return Differ(no_rollout_, both_train_) || Differ(no_train_, both_rollout_) || Untested();
}

std::string MissingValues::Words() const {
  if (Differ(no_rollout_, both_train_)) {
    return absl::StrFormat(
        "the mean log pi of %d tokens without log mu is %.3g, of the others %.3g", no_rollout_.n,
        no_rollout_.mean(), both_train_.mean());
  }
  if (Differ(no_train_, both_rollout_)) {
    return absl::StrFormat(
        "the mean log mu of %d tokens without log pi is %.3g, of the others %.3g", no_train_.n,
        no_train_.mean(), both_rollout_.mean());
  }
  return Untested() ? absl::StrFormat("%d tokens have a value on neither side", neither_) : "";
}

}  // namespace plumbline::analysis
