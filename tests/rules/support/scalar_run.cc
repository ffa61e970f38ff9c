#include "tests/rules/support/scalar_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

class ScalarSimulator {
 public:
  explicit ScalarSimulator(const ScalarRunSpec& spec) : spec_(spec), draw_(spec.seed) {}

  v1::Batch Attempt(uint32_t attempt, int from, int to) {
    v1::Batch batch;
    for (int rank = 0; rank < spec_.ranks; ++rank)
      *batch.add_sources() = test::SourceOf("run", static_cast<uint32_t>(rank),
                                            static_cast<uint32_t>(spec_.ranks), attempt);
    for (int point = from; point < to; ++point) {
      const int64_t step = int64_t{point} * spec_.every;
      for (int rank = 0; rank < spec_.ranks; ++rank)
        Add(spec_.name, step, rank, Value(point, rank), &batch);
      if (spec_.rate || spec_.rate_restart > 0) Add("lr", step, 0, Rate(point), &batch);
      if (!spec_.evaluation.empty() && point % 10 == 0)
        Add(spec_.evaluation, step, 0, Evaluation(point), &batch);
    }
    return batch;
  }

 private:
  static void Add(const std::string& name, int64_t step, int rank, std::optional<double> value,
                  v1::Batch* batch) {
    if (!value) return;
    test::AddScalar(batch, name, step, *value).set_source(static_cast<uint32_t>(rank));
  }

  double Mean(int point) const {
    if (spec_.flat) return spec_.begin;
    const int at = spec_.plateau > 0 ? std::min(point, spec_.plateau) : point;
    return spec_.floor + (spec_.begin - spec_.floor) * std::pow(1 + at / spec_.scale, -spec_.power);
  }

  std::optional<double> Value(int point, int rank) {
    double value = Mean(point) * std::exp(spec_.noise * draw_.Normal()) + spec_.shift;
    const int in = point - spec_.fault_at;
    const bool hit = spec_.fault_rank < 0 || spec_.fault_rank == rank;
    if (!spec_.fault.empty() && hit && in >= 0 && in < spec_.fault_points) {
      const double done = static_cast<double>(in) / spec_.fault_points;
      if (spec_.fault == "absent") return std::nullopt;
      if (spec_.fault == "nan") return std::numeric_limits<double>::quiet_NaN();
      if (spec_.fault == "inf") return std::numeric_limits<double>::infinity();
      const double of = spec_.fault == "decay" ? 1 - done : spec_.fault == "ramp" ? done : 1;
      value += of * spec_.fault_height * Mean(point);
    }
    if (spec_.rounding > 0) value = std::round(value / spec_.rounding) * spec_.rounding;
    return value;
  }

  // Returns a cosine down to a twentieth, and up again at the restart.
  double Rate(int point) const {
    const bool again = spec_.rate_restart > 0 && point >= spec_.rate_restart;
    const int from = again ? spec_.rate_restart : 0;
    const int to = again || spec_.rate_restart == 0 ? spec_.points : spec_.rate_restart;
    const double done = static_cast<double>(point - from) / (to - from);
    return 1e-3 * (0.05 + 0.95 * (1 + std::cos(3.141592653589793 * done)) / 2);
  }

  double Evaluation(int point) {
    const double half = spec_.points / 2.0;
    const double over = std::max(0.0, (point - half) / half);
    return 1.02 * Mean(std::min(point, static_cast<int>(half))) * (1 + spec_.overfit * over) *
           std::exp(spec_.noise * draw_.Normal());
  }

  const ScalarRunSpec spec_;
  Draw draw_;
};

}  // namespace

void Set(ScalarRunSpec& spec, const std::string& key, const std::string& value) {
  if (key == "seed") {
    spec.seed = std::stoull(value);
    return;
  }
  SetField(
      {.whole = {{"points", &spec.points},
                 {"every", &spec.every},
                 {"ranks", &spec.ranks},
                 {"plateau", &spec.plateau},
                 {"fault_at", &spec.fault_at},
                 {"fault_points", &spec.fault_points},
                 {"fault_rank", &spec.fault_rank},
                 {"rate_restart", &spec.rate_restart},
                 {"resume_at", &spec.resume_at},
                 {"resume_from", &spec.resume_from}},
       .number = {{"begin", &spec.begin},
                  {"floor", &spec.floor},
                  {"power", &spec.power},
                  {"scale", &spec.scale},
                  {"noise", &spec.noise},
                  {"shift", &spec.shift},
                  {"rounding", &spec.rounding},
                  {"fault_height", &spec.fault_height},
                  {"overfit", &spec.overfit}},
       .flag = {{"flat", &spec.flat}, {"rate", &spec.rate}},
       .text = {{"name", &spec.name}, {"fault", &spec.fault}, {"evaluation", &spec.evaluation}}},
      key, value);
}

std::vector<v1::Batch> ScalarRun(const ScalarRunSpec& spec) {
  ScalarSimulator simulator(spec);
  if (spec.resume_at == 0) return {simulator.Attempt(0, 0, spec.points)};
  std::vector<v1::Batch> batches = {simulator.Attempt(0, 0, spec.resume_at)};
  batches.push_back(simulator.Attempt(1, spec.resume_from, spec.points));
  return batches;
}

}  // namespace plumbline::rules::testing
