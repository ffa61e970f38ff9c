#include "analysis/drift/values/units.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumbline::analysis {
namespace {

// With log10, rounding and different kernels leave 1e-4 of the squares; a temperature leaves a
// tenth.
constexpr double kMostRest = 0.01;
constexpr uint64_t kFewestTokens = 64, kFewestOfSequence = 4, kFewestSequences = 8;

// FP8 noise moves the factor of a short sequence by up to a few percent.
bool Near(double value, double target) { return std::fabs(value / target - 1) < 0.05; }

}  // namespace

void UnitsFit::Column::Add(double value, bool is_first) {
  if (is_first) *this = {.first = value};
  constant = constant && value == first;
  sum += value;
}

// One token whose value differs shows that the other side has a number per token.
void UnitsFit::Counts::Add(const Column& repeated, const Column& other, double length) {
  if (!repeated.constant || other.constant) return;
  by_sum += Near(repeated.first, other.sum) ? 1 : 0;
  by_mean += Near(repeated.first * length, other.sum) ? 1 : 0;
  number += repeated.first;
  sum += other.sum;
  mean += other.sum / length;
}

void UnitsFit::Add(double train, double rollout) {
  const double d = train - rollout;
  train_.Add(train, open_.tokens == 0);
  rollout_.Add(rollout, open_.tokens == 0);
  ++open_.tokens;
  open_.rr += rollout * rollout;
  open_.tr += train * rollout;
  open_.tt += train * train;
  open_.dd += d * d;
}

void UnitsFit::EndSequence() {
  if (open_.tokens >= kFewestOfSequence && open_.rr > 0) {
    const auto length = static_cast<double>(open_.tokens);
    ++sequences_;
    const bool constant = open_.rest() < kMostRest;
    by_length_ += constant && Near(open_.factor(), length);
    by_inverse_ += constant && Near(open_.factor(), 1 / length);
    train_repeated_.Add(train_, rollout_, length);
    rollout_repeated_.Add(rollout_, train_, length);
    shortest_ = sequences_ == 1 ? open_.tokens : std::min(shortest_, open_.tokens);
    longest_ = std::max(longest_, open_.tokens);
  }
  all_.tokens += open_.tokens;
  all_.rr += open_.rr;
  all_.tr += open_.tr;
  all_.tt += open_.tt;
  all_.dd += open_.dd;
  open_ = {};
}

double UnitsFit::Factor() const {
  const bool constant = all_.tokens >= kFewestTokens && all_.rr > 0 && all_.rest() < kMostRest;
  return constant ? all_.factor() : std::numeric_limits<double>::quiet_NaN();
}

bool UnitsFit::SeveralLengths() const {
  return sequences_ >= kFewestSequences && longest_ > shortest_;
}
bool UnitsFit::ByLength() const { return SeveralLengths() && by_length_ == sequences_; }
bool UnitsFit::ByInverseLength() const { return SeveralLengths() && by_inverse_ == sequences_; }

UnitsFit::Repeated UnitsFit::RepeatedNumber() const {
  Repeated repeated{.sequences = sequences_};
  if (sequences_ < kFewestSequences) return repeated;
  for (const bool of_train : {true, false}) {
    const Counts& counts = of_train ? train_repeated_ : rollout_repeated_;
    for (const bool mean : {false, true}) {
      if (repeated.found || (mean ? counts.by_mean : counts.by_sum) != sequences_) continue;
      repeated.found = true;
      repeated.of_train = of_train;
      repeated.mean = mean;
      repeated.ratio = counts.number / (mean ? counts.mean : counts.sum);
    }
  }
  return repeated;
}

}  // namespace plumbline::analysis
