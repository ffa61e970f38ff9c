#include "analysis/accumulation/accumulation_replay.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

// If the sum is first kept in fp32 registers and then stored, it is rounded twice.
double RoundInto(double v, const AccumulationModel& m) {
  if (m.via_fp32) v = RoundToFormat(v, DType::kF32);
  return RoundToFormat(v, m.dtype, m.rounding);
}

double Cast(double v, const AccumulationModel& m) {
  return m.cast_first ? RoundToFormat(v, m.dtype) : v;
}

// Returns the sum in `result_dtype`, divided if it is an average.
double Finished(double sum, const Accumulation& a) {
  return RoundToFormat(a.average ? sum / static_cast<double>(a.adds) : sum, a.dtype);
}

// Returns the candidates in the order in which a class is named.
std::vector<AccumulationModel> Candidates(const Accumulation& a) {
  std::vector<AccumulationModel> all;
  const auto add = [&](DType t, RoundingMode mode) {
    all.push_back({t, mode});
    if (FormatOf(t).precision >= 24) return;
    all.push_back({t, mode, false, true});
    all.push_back({t, mode, true, false});
  };
  std::vector<DType> dtypes = {a.declared,  a.dtype,      DType::kF32,
                               DType::kF64, DType::kBF16, DType::kF16};
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (dtypes[i] == DType::kUnspecified ||
        std::find(dtypes.begin(), dtypes.begin() + static_cast<int64_t>(i), dtypes[i]) !=
            dtypes.begin() + static_cast<int64_t>(i)) {
      continue;
    }
    add(dtypes[i], RoundingMode::kNearestEven);
    if (dtypes[i] != DType::kF64) add(dtypes[i], RoundingMode::kTowardZero);
  }
  return all;
}

// Returns true if users would give both models the same name.
bool SameFamily(const AccumulationModel& a, const AccumulationModel& b) {
  return (a.dtype == b.dtype && a.rounding == b.rounding) || (!a.half() && !b.half());
}

// Models that give the same sums here, so that the samples cannot distinguish them.
struct Class {
  std::vector<AccumulationModel> members;
  std::vector<double> results;
  uint64_t matches = 0;
};

std::vector<Class> Classes(const Accumulation& a, const std::vector<size_t>& finite) {
  std::vector<Class> classes;
  for (const AccumulationModel& model : Candidates(a)) {
    std::vector<double> results;
    for (size_t i : finite) results.push_back(Replay(a, model, i));
    const auto same = std::find_if(classes.begin(), classes.end(),
                                   [&](const Class& c) { return c.results == results; });
    if (same != classes.end()) {
      same->members.push_back(model);
      continue;
    }
    Class c{{model}, std::move(results)};
    for (size_t j = 0; j < finite.size(); ++j)
      c.matches += c.results[j] == a.result[finite[j]] ? 1 : 0;
    classes.push_back(std::move(c));
  }
  return classes;
}

uint64_t Differences(const std::vector<double>& a, const std::vector<double>& b) {
  uint64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += a[i] == b[i] ? 0 : 1;
  return n;
}

// A fixed hash: selects the addend at place k of sample i (splitmix64's finaliser).
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::string AccumulationModel::text() const {
  std::string t =
      absl::StrCat(DTypeName(dtype), rounding == RoundingMode::kTowardZero ? " toward zero" : "",
                   ", one after the other");
  if (cast_first) absl::StrAppend(&t, ", addends rounded first");
  return t;
}

double Replay(const Accumulation& a, const AccumulationModel& m, size_t i) {
  double sum = a.has_start ? a.start[i] : Cast(a.addend(0, i), m);
  if (!a.has_start) sum = RoundInto(sum, m);
  for (size_t k = a.has_start ? 0 : 1; k < a.adds; ++k)
    sum = RoundInto(sum + Cast(a.addend(k, i), m), m);
  return Finished(sum, a);
}

bool Confirms(const Accumulation& a, const AccumulationModel& model) {
  bool any = false;
  for (size_t i = 0; i < a.samples; ++i) {
    if (!a.finite(i)) continue;
    if (Replay(a, model, i) != a.result[i]) return false;
    any = true;
  }
  return any;
}

LostMass ReplayLost(const Accumulation& a, const AccumulationModel& m) {
  LostMass lost;
  for (size_t i = 0; i < a.samples; ++i) {
    if (!a.finite(i)) continue;
    double sum = a.has_start ? a.start[i] : 0;
    for (size_t k = 0; k < a.adds; ++k) {
      const double next = RoundInto(sum + Cast(a.addend(k, i), m), m);
      lost.Take(sum, a.addend(k, i), next);
      sum = next;
    }
  }
  return lost;
}

AccumulationMatch MatchAccumulation(const Accumulation& a) {
  AccumulationMatch match;
  std::vector<size_t> finite;
  for (size_t i = 0; i < a.samples; ++i) {
    if (a.finite(i)) finite.push_back(i);
  }
  match.samples = finite.size();
  const std::vector<Class> classes = Classes(a, finite);
  const auto best =
      std::max_element(classes.begin(), classes.end(),
                       [](const Class& x, const Class& y) { return x.matches < y.matches; });
  match.model = best->members[0];
  match.matches = best->matches;
  match.discriminating = finite.size();
  const auto in_family = [&](const AccumulationModel& m) { return SameFamily(m, match.model); };
  for (const Class& c : classes) {
    const bool family = std::all_of(c.members.begin(), c.members.end(), in_family);
    if (family) continue;
    if (&c == &*best) {
      match.discriminating = 0;  // the accepted class itself contains another family
      continue;
    }
    match.discriminating = std::min(match.discriminating, Differences(c.results, best->results));
    if (match.runner_up.empty() || c.matches > match.runner_up_matches) {
      match.runner_up = c.members[0].text();
      match.runner_up_matches = c.matches;
    }
  }
  const bool all = match.samples > 0 && match.matches == match.samples;
  const double needed = std::log(static_cast<double>(classes.size()) * 1e6);
  match.accepted = all && static_cast<double>(match.discriminating) >= needed;
  match.indistinguishable = all && !match.accepted;
  return match;
}

LongerSums Extrapolate(const Accumulation& a, const AccumulationModel& model) {
  constexpr size_t kMostSamples = 256;
  constexpr uint64_t kMostAdds = 2048;
  LongerSums longer;
  std::vector<size_t> finite;
  for (size_t i = 0; i < a.samples && finite.size() < kMostSamples; ++i) {
    if (a.finite(i)) finite.push_back(i);
  }
  const double scale = BiasUnitScale(a.dtype);
  for (uint64_t adds = 2 * a.adds; adds <= std::max<uint64_t>(kMostAdds, 4 * a.adds); adds *= 2) {
    BiasStream stream(0);
    double got = 0;
    double exact = 0;
    SumErrors errors;
    for (size_t i : finite) {
      Accumulation one;
      one.adds = adds;
      one.samples = 1;
      one.dtype = a.dtype;
      one.average = a.average;
      one.addends.resize(adds);
      ExactSum s;
      double squares = 0;
      for (uint64_t k = 0; k < adds; ++k) {
        const double x = a.addend(Mixed(i * 0x10001 + k) % a.adds, i);
        one.addends[k] = x;
        s.Add(x);
        squares += x * x;
      }
      const double y = Replay(one, model, 0);
      const uint32_t divisor = a.average ? static_cast<uint32_t>(adds) : 1;
      SumError e = ErrorOf(y, s, squares, a.dtype, divisor);
      e.e *= scale;
      errors.Take(e);
      if (!std::isfinite(y)) continue;
      got += y * s.Sign();
      exact += std::fabs(s.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor));
    }
    stream.Add(errors, std::nullopt);
    longer.tried.push_back({adds, stream.mean(), stream.half_width(), got / exact - 1});
    longer.breaks = stream.interval_level() != v1::LEVEL_UNSPECIFIED;
    if (longer.breaks) break;
  }
  return longer;
}

}  // namespace plumbline::analysis
