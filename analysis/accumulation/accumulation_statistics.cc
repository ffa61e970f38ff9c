#include "analysis/accumulation/accumulation_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

// Describes the accepted model, and how close the next one came.
void DescribeModel(const AccumulationMatch& match, const char* name,
                   google::protobuf::Struct& details) {
  google::protobuf::Struct& model = PutStruct(details, "model");
  Put(model, "name", name);
  if (match.accepted) {
    Put(model, "dtype", DTypeName(match.model.dtype));
    Put(model, "rounding",
        match.model.rounding == RoundingMode::kTowardZero ? "toward-zero" : "nearest-even");
  }
  Put(details, "matches", static_cast<double>(match.matches));
  Put(details, "samples", static_cast<double>(match.samples));
  Put(details, "discriminating", static_cast<double>(match.discriminating));
  Put(details, "runner_up", match.runner_up);
  Put(details, "runner_up_matches", static_cast<double>(match.runner_up_matches));
}

}  // namespace

double AccumulationStatistics::Rank::fp32_mean() const {
  return fp32_errors / static_cast<double>(fp32_count);
}

void AccumulationStatistics::Take(const SiteStep& step, const std::vector<Accumulation>& all,
                                  uint64_t more) {
  if (steps_ == 0) step_first = step.step;
  step_last = steps_ == 0 ? step.step : std::max(step_last, step.step);
  ++steps_;
  more_ += more;
  for (const Accumulation& a : all) {
    if (!a.problem.empty()) {
      ++problems_[a.problem];
      ++unjudged_;
      continue;
    }
    const auto [entry, fresh] = ranks_.try_emplace(a.rank);
    Rank& rank = entry->second;
    if (fresh) {
      rank.rank = a.rank;
      rank.stream = BiasStream(alpha_ * ShareOfNumber(a.rank));
    } else if (step.step <= rank.last_step) {
      ++repeated_;
      continue;
    }
    rank.last_step = step.step;
    TakeOne(a, rank);
    TakeModel(a, rank);
  }
}

void AccumulationStatistics::TakeOne(const Accumulation& a, Rank& rank) {
  most_adds = std::max(most_adds, a.adds);
  unit = BiasUnit(a.dtype);
  const double scale = BiasUnitScale(a.dtype);
  const uint32_t divisor = a.average ? static_cast<uint32_t>(a.adds) : 1;
  const AccumulationModel fp32{DType::kF32};
  SumErrors errors;
  rank.worst = {};
  for (size_t i = 0; i < a.samples; ++i) {
    if (!a.finite(i)) {
      errors.TakeAside();
      continue;
    }
    ExactSum s;
    s.Add(a.start[i]);
    double squares = a.start[i] * a.start[i];
    for (size_t k = 0; k < a.adds; ++k) {
      s.Add(a.addend(k, i));
      squares += a.addend(k, i) * a.addend(k, i);
    }
    SumError e = ErrorOf(a.result[i], s, squares, a.dtype, divisor);
    e.e *= scale;
    errors.Take(e);
    if (e.kind != SumError::Kind::kJudged) continue;
    const double exact = s.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor);
    rank.got += a.result[i] * s.Sign();
    rank.exact += std::fabs(exact);
    const SumError other = ErrorOf(Replay(a, fp32, i), s, squares, a.dtype, divisor);
    if (other.kind == SumError::Kind::kJudged) {
      rank.fp32_errors += other.e * scale;
      ++rank.fp32_count;
    }
    if (std::fabs(e.e) > std::fabs(rank.worst.e))
      rank.worst = {e.e, exact, a.result[i], a.offsets[i], a.adds};
  }
  rank.aside += errors.aside;
  rank.stream.Add(errors, a.count >= a.samples ? std::optional<uint64_t>(a.count) : std::nullopt);
}

void AccumulationStatistics::TakeModel(const Accumulation& a, Rank& rank) {
  // Once accepted, a model is only confirmed. Search again if it does not fit.
  if (!rank.match.accepted || !Confirms(a, rank.match.model)) {
    const AccumulationMatch now = MatchAccumulation(a);
    const auto worth = [](const AccumulationMatch& m) {
      return std::make_tuple(m.accepted, m.indistinguishable, m.samples > 0);
    };
    if (worth(now) >= worth(rank.match)) rank.match = now;
  }
  if (a.lost.adds > 0) {
    rank.lost.Add(a.lost);
  } else if (rank.match.accepted) {
    rank.lost.Add(ReplayLost(a, rank.match.model));
  }
  if (extrapolated_ || !rank.match.accepted || !rank.match.model.half() || rank.stream.alarmed())
    return;
  extrapolated_ = true;
  longer = Extrapolate(a, rank.match.model);
}

const AccumulationStatistics::Rank* AccumulationStatistics::Worst(bool alarmed) const {
  const Rank* worst = nullptr;
  const auto size = [](const Rank& r) {
    const double nearer = r.stream.mean() > 0 ? r.stream.low() : -r.stream.high();
    return std::make_pair(r.stream.interval_level(), nearer);
  };
  for (const auto& [number, rank] : ranks_) {
    const v1::Level level = alarmed ? rank.stream.level() : rank.stream.interval_level();
    if (level == v1::LEVEL_UNSPECIFIED) continue;
    if (worst == nullptr || size(rank) > size(*worst)) worst = &rank;
  }
  return worst;
}

const AccumulationStatistics::Rank* AccumulationStatistics::Alarmed() const { return Worst(true); }
const AccumulationStatistics::Rank* AccumulationStatistics::Outside() const { return Worst(false); }

const AccumulationStatistics::Rank* AccumulationStatistics::Shown() const {
  const Rank* outside = Outside();
  return outside != nullptr || ranks_.empty() ? outside : &ranks_.begin()->second;
}

double AccumulationStatistics::log_wealth() const {
  double largest = -std::numeric_limits<double>::infinity();
  for (const auto& [number, rank] : ranks_) largest = std::max(largest, rank.stream.log_wealth());
  double sum = 0;
  for (const auto& [number, rank] : ranks_) sum += std::exp(rank.stream.log_wealth() - largest);
  return ranks_.empty() ? 0 : largest + std::log(sum / static_cast<double>(ranks_.size()));
}

uint64_t AccumulationStatistics::Judged() const {
  uint64_t n = 0;
  for (const auto& [number, rank] : ranks_) n += rank.stream.count();
  return n;
}

bool AccumulationStatistics::Enough() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    const BiasStream& stream = entry.second.stream;
    return static_cast<double>(stream.count()) >= FewestSamples(stream.alpha());
  });
}

bool AccumulationStatistics::WithinBudget() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& entry) {
    const BiasStream& stream = entry.second.stream;
    return stream.low() >= -kBiasBudgetUlp && stream.high() <= kBiasBudgetUlp;
  });
}

std::string AccumulationStatistics::WhyNothing() const {
  uint64_t aside = 0;
  for (const auto& [number, rank] : ranks_) aside += rank.aside;
  if (aside > 0)
    return absl::StrFormat("non-finite: every sampled sum (%d) holds a NaN or an infinity", aside);
  if (problems_.empty()) return "zero-sums: every sampled sum is exactly zero";
  const auto most =
      std::max_element(problems_.begin(), problems_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first;
}

const char* AccumulationStatistics::Rank::ModelName() const {
  if (match.accepted) return match.model.half() ? "sequential" : "fp32";
  return match.indistinguishable ? "indistinguishable" : "unexplained";
}

std::string AccumulationStatistics::Rank::ModelText() const {
  if (match.accepted) {
    return absl::StrFormat("Replay: %s, equals %d of %d sums bit for bit (%s: %d)",
                           match.model.text(), match.matches, match.samples, match.runner_up,
                           match.runner_up_matches);
  }
  if (match.indistinguishable)
    return "Replay: several dtypes give these sums, because they need few bits";
  return absl::StrFormat("Replay: no candidate gives these sums (%s: %d of %d)", match.model.text(),
                         match.matches, match.samples);
}

std::string AccumulationStatistics::Rank::CauseId() const {
  if (!match.accepted) return "unknown";
  if (match.model.rounding == RoundingMode::kTowardZero) return "toward-zero";
  return match.model.half() ? "16-bit-accumulator" : "long-sum";
}

std::vector<uint32_t> AccumulationStatistics::SiteRanks(bool finding) const {
  std::vector<uint32_t> all, outside;
  for (const auto& [number, rank] : ranks_) {
    all.push_back(number);
    if (rank.stream.interval_level() != v1::LEVEL_UNSPECIFIED) outside.push_back(number);
  }
  return finding && !outside.empty() ? outside : all;
}

std::vector<std::string> AccumulationStatistics::Assumptions() const {
  std::vector<std::string> all;
  if (more_ > 0)
    all.push_back(absl::StrFormat(
        "%d further sums of a step sampled the same elements and were not counted", more_));
  if (repeated_ > 0)
    all.push_back(
        absl::StrFormat("%d sums of steps repeated after a restart were counted once", repeated_));
  return all;
}

void AccumulationStatistics::Describe(google::protobuf::Struct& details) const {
  Put(details, "steps", static_cast<double>(steps_));
  Put(details, "steps_not_judged", static_cast<double>(unjudged_));
  if (!problems_.empty()) Put(details, "not_judged_because", problems_.begin()->first);
  uint64_t aside = 0;
  for (const auto& [number, rank] : ranks_) aside += rank.aside;
  Put(details, "set_aside", static_cast<double>(aside));
  const Rank* shown = Shown();
  if (shown == nullptr) return;
  DescribeModel(shown->match, shown->ModelName(), details);
  Put(details, "addends", static_cast<double>(most_adds));
  if (shown->stream.count() == 0) return;
  Put(details, "mean", shown->stream.mean());
  Put(details, "low", shown->stream.low());
  Put(details, "high", shown->stream.high());
  Put(details, "unit", unit);
  Put(details, "rms", shown->stream.rms());
  Put(details, "misround_rate", shown->stream.misround_rate());
  Put(details, "relative_bias", shown->relative());
  Put(details, "fp32_mean", shown->fp32_mean());
  if (shown->lost.adds > 0) {
    Put(details, "lost_add_share", shown->lost.lost_share());
    Put(details, "lost_mass_share", shown->lost.mass_share());
  }
  if (!longer.tried.empty()) {
    Put(details, "longest_sum_tried", static_cast<double>(longer.tried.back().adds));
    Put(details, "its_relative_bias", longer.tried.back().relative);
  }
}

void AccumulationStatistics::FillWitness(const Rank& rank,
                                         google::protobuf::Struct& witness) const {
  Put(witness, "rank", static_cast<double>(rank.rank));
  Put(witness, "step", static_cast<double>(rank.last_step));
  Put(witness, "element", static_cast<double>(rank.worst.element));
  Put(witness, "addends", static_cast<double>(rank.worst.adds));
  Put(witness, "exact_sum", rank.worst.exact);
  Put(witness, "result", rank.worst.result);
  Put(witness, "error", rank.worst.e);
}

}  // namespace plumbline::analysis
