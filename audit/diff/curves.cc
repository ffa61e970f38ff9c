#include "audit/diff/curves.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "analysis/series/series.h"

namespace plumbline::audit {
namespace {

using Points = std::vector<SeriesPoint>;

// The curve of one run: position (step or tokens) and ln loss, ascending.
struct Curve {
  std::vector<double> at, ln;
};

bool Same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

class Pairing {
 public:
  using Runs = std::vector<const RecordedRun*>;

  Pairing(const Runs& a, const Runs& b, const SeriesRoles& roles)
      : of_a_(a.size()), of_b_(b.size()), roles_(roles), runs_(a) {
    runs_.insert(runs_.end(), b.begin(), b.end());
    for (const RecordedRun* run : runs_) tokens_.push_back(TokensOf(*run, roles));
  }

  // Compares the series that all runs have.
  void CompareAll(const std::string& run, std::vector<SeriesDiff>* out) const {
    for (const auto& [name, points] : runs_[0]->series) {
      const auto has = [&name = name](const RecordedRun* one) {
        return one->series.contains(name);
      };
      if (!std::all_of(runs_.begin(), runs_.end(), has)) continue;
      out->push_back(Compare(name));
      out->back().run = run;
    }
  }

 private:
  SeriesDiff Compare(const std::string& name) const {
    SeriesDiff out;
    out.name = name;
    out.role = DiffRoleOf(name, roles_);
    std::vector<const Points*> points;
    for (const RecordedRun* run : runs_) points.push_back(&run->series.at(name));
    const std::vector<int64_t> steps = CommonSteps(points);
    out.common = steps.size();
    for (size_t r = 0; r < points.size(); ++r)
      (r < of_a_ ? out.only_a : out.only_b) += points[r]->size() - steps.size();
    for (size_t r = 0; r < points.size(); ++r) {
      int64_t& last = r < of_a_ ? out.last_a : out.last_b;
      if (!points[r]->empty()) last = std::max(last, points[r]->back().step);
    }
    Exact(points, steps, &out);
    if (out.role != DiffRole::kLoss) return out;
    out.by_step = ByStep(points, steps);
    out.by_tokens = ByTokens(points, steps);
    return out;
  }

  static std::vector<int64_t> CommonSteps(const std::vector<const Points*>& points) {
    std::vector<int64_t> steps;
    for (const SeriesPoint& p : *points[0]) steps.push_back(p.step);
    for (size_t r = 1; r < points.size(); ++r) {
      std::vector<int64_t> both;
      auto p = points[r]->begin();
      for (const int64_t step : steps) {
        while (p != points[r]->end() && p->step < step) ++p;
        if (p != points[r]->end() && p->step == step) both.push_back(step);
      }
      steps.swap(both);
    }
    return steps;
  }

  // Returns the values at the common steps: [run][step].
  static std::vector<std::vector<double>> At(const std::vector<const Points*>& points,
                                             const std::vector<int64_t>& steps) {
    std::vector<std::vector<double>> values;
    for (const Points* run : points) {
      std::vector<double>& mine = values.emplace_back();
      auto p = run->begin();
      for (const int64_t step : steps) {
        while (p->step < step) ++p;
        mine.push_back(p->value);
      }
    }
    return values;
  }

  void Exact(const std::vector<const Points*>& points, const std::vector<int64_t>& steps,
             SeriesDiff* out) const {
    out->exact = of_a_ == 1 && of_b_ == 1;
    if (!out->exact) return;
    const auto values = At(points, steps);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (Same(values[0][i], values[1][i])) continue;
      out->first_difference = steps[i];
      out->value_a = values[0][i];
      out->value_b = values[1][i];
      return;
    }
  }

  // Compares at the points where each run's loss has a logarithm.
  AlongAxis ByStep(const std::vector<const Points*>& points,
                   const std::vector<int64_t>& steps) const {
    const auto values = At(points, steps);
    std::vector<double> at;
    departure::Curves curves(points.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool all = std::all_of(values.begin(), values.end(), [i](const auto& run) {
        return std::isfinite(run[i]) && run[i] > 0;
      });
      if (!all) continue;
      at.push_back(static_cast<double>(steps[i]));
      for (size_t r = 0; r < values.size(); ++r) curves[r].push_back(std::log(values[r][i]));
    }
    return Along(at, curves);
  }

  AlongAxis Along(const std::vector<double>& at, departure::Curves curves) const {
    AlongAxis out;
    const auto parted = curves.begin() + static_cast<std::ptrdiff_t>(of_a_);
    const departure::Curves a(curves.begin(), parted), b(parted, curves.end());
    out.comparison = departure::Compare(a, b);
    out.end = departure::EndsApart(a, b);
    if (out.comparison.block == 0) out.few = departure::SignTest(a, b);
    if (out.comparison.departure) out.onset = at[out.comparison.departure->onset];
    if (!at.empty()) out.first = at.front(), out.last = at.back();
    return out;
  }

  // Returns the tokens seen by each step. If a token series does not rise, it counts tokens per
  // step and is summed.
  static Points TokensOf(const RecordedRun& run, const SeriesRoles& roles) {
    for (const auto& [name, points] : run.series) {
      if (DiffRoleOf(name, roles) != DiffRole::kTokens || points.empty()) continue;
      Points out = points;
      bool rises = points.back().value > points.front().value;
      for (size_t i = 1; i < out.size(); ++i) rises &= out[i].value >= out[i - 1].value;
      double sum = 0;
      for (SeriesPoint& p : out) {
        sum += p.value;
        if (!rises) p.value = sum;
      }
      return std::isfinite(sum) ? out : Points();
    }
    return {};
  }

  std::optional<AlongAxis> ByTokens(const std::vector<const Points*>& points,
                                    const std::vector<int64_t>& steps) const {
    std::vector<Curve> curves;
    for (size_t r = 0; r < points.size(); ++r) {
      curves.push_back(OverTokens(*points[r], tokens_[r]));
      if (curves.back().at.size() < 2) return std::nullopt;
    }
    if (SameTokens(steps)) return std::nullopt;
    return Interpolated(curves);
  }

  // Returns true if all runs have the same tokens at each step. Then the axis of steps is
  // sufficient.
  bool SameTokens(const std::vector<int64_t>& steps) const {
    std::vector<const Points*> tokens;
    for (const Points& t : tokens_) tokens.push_back(&t);
    const std::vector<int64_t> with = CommonSteps(tokens);
    std::vector<int64_t> both;
    std::set_intersection(steps.begin(), steps.end(), with.begin(), with.end(),
                          std::back_inserter(both));
    if (both.empty()) return false;
    const auto values = At(tokens, both);
    return std::all_of(values.begin(), values.end(),
                       [&values](const auto& run) { return run == values[0]; });
  }

  static Curve OverTokens(const Points& loss, const Points& tokens) {
    Curve curve;
    auto t = tokens.begin();
    for (const SeriesPoint& p : loss) {
      while (t != tokens.end() && t->step < p.step) ++t;
      if (t == tokens.end()) break;
      const bool usable = t->step == p.step && std::isfinite(p.value) && p.value > 0;
      if (!usable || (!curve.at.empty() && !(t->value > curve.at.back()))) continue;
      curve.at.push_back(t->value);
      curve.ln.push_back(std::log(p.value));
    }
    return curve;
  }

  // Compares along tokens, at the points of the run that has the fewest in the common range. The
  // other curves are interpolated linearly.
  AlongAxis Interpolated(const std::vector<Curve>& runs) const {
    double first = -std::numeric_limits<double>::infinity(), last = -first;
    for (const Curve& run : runs) {
      first = std::max(first, run.at.front());
      last = std::min(last, run.at.back());
    }
    std::vector<double> at;
    bool any = false;
    for (const Curve& run : runs) {
      std::vector<double> inside;
      for (const double x : run.at) {
        if (x >= first && x <= last) inside.push_back(x);
      }
      if (!any || inside.size() < at.size()) at = inside;
      any = true;
    }
    departure::Curves curves;
    for (const Curve& run : runs) curves.push_back(On(run, at));
    return Along(at, std::move(curves));
  }

  static std::vector<double> On(const Curve& run, const std::vector<double>& at) {
    std::vector<double> out;
    size_t i = 0;
    for (const double x : at) {
      while (i + 2 < run.at.size() && run.at[i + 1] <= x) ++i;
      const double share = (x - run.at[i]) / (run.at[i + 1] - run.at[i]);
      out.push_back(run.ln[i] + share * (run.ln[i + 1] - run.ln[i]));
    }
    return out;
  }

  const size_t of_a_, of_b_;  // number of runs
  const SeriesRoles& roles_;
  Runs runs_;  // runs of a, then of b
  std::vector<Points> tokens_;
};

using Runs = std::vector<const RecordedRun*>;

// Groups runs by format.
std::map<std::string, Runs> ByFormat(const DiffSide& side) {
  std::map<std::string, Runs> runs;
  for (const RecordedRun& run : side.runs) runs[run.format].push_back(&run);
  return runs;
}

std::map<std::string, const RecordedRun*> ByPlace(const Runs& runs) {
  std::map<std::string, const RecordedRun*> places;
  for (const RecordedRun* run : runs) places.emplace(run->place, run);
  return places;
}

bool SamePlaces(const Runs& a, const Runs& b) {
  const auto of_a = ByPlace(a), of_b = ByPlace(b);
  return of_a.size() == a.size() && of_b.size() == b.size() &&
         std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const auto& one, const auto& other) { return one.first == other.first; });
}

// Compares folders. A run's folder may hold a log, event files and tables, each recorded as a run
// with its own name. Runs at the same place in both folders are compared. If places differ, all
// runs of a format are compared with all of the other side.
void CompareFolders(const DiffSide& a, const DiffSide& b, std::vector<SeriesDiff>* out) {
  const auto of_a = ByFormat(a), of_b = ByFormat(b);
  for (const auto& [format, runs] : of_a) {
    const auto other = of_b.find(format);
    if (other == of_b.end()) continue;
    if (!SamePlaces(runs, other->second)) {
      Pairing(runs, other->second, a.roles).CompareAll(format, out);
      continue;
    }
    const auto places = ByPlace(other->second);
    for (const auto& [place, run] : ByPlace(runs))
      Pairing({run}, {places.at(place)}, a.roles).CompareAll(place.empty() ? format : place, out);
  }
}

// Returns true if each side is one folder, and one of them was written by several loggers.
bool AreFolders(const DiffSide& a, const DiffSide& b) {
  const auto several = [](const DiffSide& side) { return ByFormat(side).size() > 1; };
  return a.paths.size() == 1 && b.paths.size() == 1 && (several(a) || several(b));
}

// Returns the only series of this role that has two points or more. If there is none or more than
// one, returns "".
std::string OnlyOf(const RecordedRun& run, SeriesRole role, const SeriesRoles& roles) {
  std::string only;
  for (const auto& [name, points] : run.series) {
    if (points.size() < 2 || roles.Of(name) != role) continue;
    if (!only.empty()) return "";
    only = name;
  }
  return only;
}

// Compares the only loss of each side, under both names.
void CompareOnlyLosses(const RecordedRun& a, const RecordedRun& b, const SeriesRoles& roles,
                       std::vector<SeriesDiff>* out) {
  for (const SeriesRole role : {SeriesRole::kLoss, SeriesRole::kEvaluationLoss}) {
    const std::string of_a = OnlyOf(a, role, roles), of_b = OnlyOf(b, role, roles);
    if (of_a.empty() || of_b.empty()) {
      if (role == SeriesRole::kLoss) return;
      continue;
    }
    RecordedRun one, other;
    one.series[of_a] = a.series.at(of_a);
    other.series[of_a] = b.series.at(of_b);
    const size_t first = out->size();
    Pairing({&one}, {&other}, roles).CompareAll("", out);
    if (of_a == of_b) continue;
    for (size_t i = first; i < out->size(); ++i) (*out)[i].name = of_a + " | " + of_b;
  }
}

}  // namespace

bool EndsEarly(const SeriesDiff& series) {
  constexpr double kShare = 0.9;
  constexpr uint64_t kFewestMissing = 3;
  return series.role == DiffRole::kLoss && series.last_b >= 0 && series.only_a >= kFewestMissing &&
         static_cast<double>(series.last_b) < kShare * static_cast<double>(series.last_a);
}

DiffRole DiffRoleOf(const std::string& name, const SeriesRoles& roles) {
  switch (roles.Of(name)) {
    case SeriesRole::kLoss:
    case SeriesRole::kEvaluationLoss:
      return DiffRole::kLoss;
    case SeriesRole::kTokens:
      return DiffRole::kTokens;
    default:
      return DiffRole::kNone;
  }
}

std::vector<SeriesDiff> CompareSeries(const DiffSide& a, const DiffSide& b) {
  std::vector<SeriesDiff> out;
  if (a.runs.empty() || b.runs.empty()) return out;
  if (AreFolders(a, b)) CompareFolders(a, b, &out);
  if (!out.empty()) return out;
  Runs of_a, of_b;
  for (const RecordedRun& run : a.runs) of_a.push_back(&run);
  for (const RecordedRun& run : b.runs) of_b.push_back(&run);
  Pairing(of_a, of_b, a.roles).CompareAll("", &out);
  if (out.empty() && a.paths.size() == 1 && b.paths.size() == 1) CompareFolders(a, b, &out);
  const bool loss = std::any_of(out.begin(), out.end(), [](const SeriesDiff& series) {
    return series.role == DiffRole::kLoss;
  });
  if (!loss && a.runs.size() == 1 && b.runs.size() == 1)
    CompareOnlyLosses(a.runs[0], b.runs[0], a.roles, &out);
  return out;
}

}  // namespace plumbline::audit
