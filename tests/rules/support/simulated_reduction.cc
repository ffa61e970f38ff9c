#include "tests/rules/support/simulated_reduction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include "base/exact_sum.h"
#include "kernels/sample_index.h"

namespace plumbline::rules::testing {
namespace {

using Column = std::vector<double>;

// SplitMix64, so that streams do not depend on a library's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Normal() {
    const double u = std::max(Uniform(), 1e-300);
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * Uniform());
  }

 private:
  uint64_t state_;
};

class Simulator {
 public:
  explicit Simulator(const ReductionSpec& spec) : spec_(spec), random_(spec.seed) {}

  ReductionCase Run() {
    ReductionCase c;
    c.ranks = spec_.ranks;
    c.samples = spec_.samples;
    c.input_dtype = c.output_dtype = c.wire_dtype = spec_.dtype;
    c.op = spec_.average == "none" ? v1::ReductionCall::OP_SUM : v1::ReductionCall::OP_AVG;
    c.offsets_given = spec_.record_offsets;
    c.count_given = spec_.record_count;
    c.count = spec_.record_count ? spec_.count : 0;
    c.channels = static_cast<uint32_t>(spec_.channels);
    c.chunk = spec_.chunk;
    if (spec_.declare_order)
      for (const int rank : spec_.order) c.ring_order.push_back(static_cast<uint32_t>(rank));
    c.inputs.resize(static_cast<size_t>(c.ranks * c.samples));
    const uint64_t key = SampleKey("simulated", static_cast<int64_t>(spec_.seed), "", "sum");
    for (int i = 0; i < c.samples; ++i) {
      const uint64_t offset = spec_.record_offsets
                                  ? SampleIndex(key, spec_.count, static_cast<uint64_t>(i))
                                  : static_cast<uint64_t>(i);
      c.offsets.push_back(offset);
      const Column x = Inputs();
      for (int r = 0; r < c.ranks; ++r)
        c.inputs[static_cast<size_t>(r * c.samples + i)] = x[static_cast<size_t>(r)];
      c.output.push_back(Reduce(x, offset));
    }
    return c;
  }

 private:
  double Round(double v) const { return Flush(RoundToFormat(v, spec_.dtype, spec_.rounding)); }
  double Flush(double v) const {
    const double least = PowerOfTwo(FormatOf(spec_.dtype).min_exponent);
    return spec_.flush && std::fabs(v) < least ? 0 : v;
  }

  Column Inputs() {
    const double c = spec_.scale * std::exp(random_.Normal());
    const bool identical = random_.Uniform() < spec_.identical;
    const bool poisoned = random_.Uniform() < spec_.non_finite;
    Column x;
    for (int r = 0; r < spec_.ranks; ++r) {
      const double v = c * (spec_.mean + spec_.spread * random_.Normal());
      x.push_back(RoundToFormat(random_.Uniform() < spec_.zeros ? 0 : v, spec_.dtype));
      if (identical && r > 0) x.back() = x[0];
    }
    if (poisoned) {
      const double bad = random_.Uniform() < .5 ? std::nan("") : HUGE_VAL;
      x[random_.Next() % x.size()] = bad;
    }
    return x;
  }

  // One rounded sum in the simulated dtype.
  double Add(double a, double b) const { return AddIn(spec_.dtype, spec_.rounding, a, b); }

  double AddIn(DType dtype, RoundingMode mode, double a, double b) const {
    if (!std::isfinite(a) || !std::isfinite(b)) return a + b;
    ExactSum s;
    s.Add(a);
    s.Add(b);
    return Flush(s.RoundTo(dtype, mode));
  }

  double Multiplier() const { return RoundToFormat(1.0 / spec_.ranks, spec_.dtype); }

  double Reduce(Column x, uint64_t offset) {
    const double n = spec_.ranks;
    for (double& v : x) {
      v = Flush(v);
      if (spec_.average == "pre-divided") v = Round(v / n);
      if (spec_.average == "pre-multiplied") v = Round(v * Multiplier());
    }
    double y = Sum(x, offset);
    if (spec_.average == "post-divided") y = Round(y / n);
    if (spec_.average == "post-multiplied") y = Round(y * Multiplier());
    return y;
  }

  double Sum(const Column& x, uint64_t offset) {
    const std::string& model = spec_.model;
    if (model == "ring") return Ring(x, Begin(offset, spec_.ranks), offset);
    if (model == "tree") return Neighbours(x);
    if (model == "halving") return Farthest(x);
    if (model == "double-tree") return DoubleTree(x, offset);
    if (model == "grouped") return Grouped(x, offset);
    if (model == "fp32") return Float(x);
    if (model == "exact") return Exact(x);
    if (model == "kahan") return Kahan(x);
    if (model == "stochastic") return Stochastic(x);
    if (model == "three-way") return ThreeWay(x);
    if (model == "random-order") return RandomOrder(x);
    if (model == "split-ring") return SplitRing(x);
    throw std::runtime_error("unknown model " + model);
  }

  uint64_t Segment(uint64_t offset, int rows) const {
    const auto n = static_cast<uint64_t>(rows);
    if (spec_.segments == "constant") return 0;
    uint64_t part = (spec_.count + n - 1) / n;
    if (spec_.segments == "gloo") part = GlooPart(spec_.count, rows, DTypeSize(spec_.dtype));
    if (spec_.segments == "chunks") {
      const uint64_t channel = (spec_.count + static_cast<uint64_t>(spec_.channels) - 1) /
                               static_cast<uint64_t>(spec_.channels);
      const uint64_t in_channel = offset % channel;
      const uint64_t length = std::min(channel, spec_.count - offset / channel * channel);
      const uint64_t loop = spec_.chunk * n;
      const uint64_t left = length - in_channel / loop * loop;
      part = left < loop ? std::max<uint64_t>(1, (left + n - 1) / n) : spec_.chunk;
      return in_channel % loop / part % n;
    }
    return offset / part % n;
  }

  int Begin(uint64_t offset, int rows) const {
    const auto segment = static_cast<int64_t>(Segment(offset, rows));
    const int64_t at = spec_.start + spec_.segment_step * segment;
    return static_cast<int>((at % rows + rows) % rows);
  }

  // Rank at a position of the ring: one order for all, or one a channel.
  int RankAt(int position, uint64_t offset) const {
    if (spec_.order.empty()) return position;
    const size_t rings = spec_.order.size() / static_cast<size_t>(spec_.ranks);
    const uint64_t channel_length = (spec_.count + static_cast<uint64_t>(spec_.channels) - 1) /
                                    static_cast<uint64_t>(spec_.channels);
    const size_t ring = rings > 1 ? offset / channel_length % rings : 0;
    return spec_.order[ring * static_cast<size_t>(spec_.ranks) + static_cast<size_t>(position)];
  }

  double Ring(const Column& x, int begin, uint64_t offset) const {
    const int n = static_cast<int>(x.size());
    double acc = 0;
    for (int i = 0; i < n; ++i) {
      const int position = ((begin + spec_.direction * i) % n + n) % n;
      const int rank = n == spec_.ranks ? RankAt(position, offset) : position;
      const double v = x[static_cast<size_t>(rank)];
      acc = i == 0 ? v : Add(acc, v);
    }
    return acc;
  }

  // Level by level, neighbours first; an odd one waits.
  double Neighbours(Column x) const {
    while (x.size() > 1) {
      Column next;
      for (size_t i = 0; i < x.size(); i += 2)
        next.push_back(i + 1 < x.size() ? Add(x[i], x[i + 1]) : x[i]);
      x = next;
    }
    return x[0];
  }

  // Rabenseifner: neighbours fold until a power of two is left, then rank r and r + half.
  double Farthest(Column x) const {
    size_t power = 1;
    while (2 * power <= x.size()) power *= 2;
    const size_t rest = x.size() - power;
    Column v;
    for (size_t i = 0; i < rest; ++i) v.push_back(Add(x[2 * i], x[2 * i + 1]));
    for (size_t i = 2 * rest; i < x.size(); ++i) v.push_back(x[i]);
    for (size_t half = power / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) v[i] = Add(v[i], v[i + half]);
    }
    return v[0];
  }

  // The complementary binary trees as NCCL builds them, by the parent's view (up and down links).
  double DoubleTree(const Column& x, uint64_t offset) const {
    const int n = spec_.ranks;
    const bool second = offset >= (spec_.count + 1) / 2;
    std::vector<std::vector<int>> children(static_cast<size_t>(n));
    for (int node = 1; node < n; ++node) {
      const int bit = node & -node;
      int up = (node ^ bit) | (bit << 1);
      if (up >= n) up = node ^ bit;
      children[static_cast<size_t>(up)].push_back(node);
    }
    const std::function<double(int)> sum = [&](int node) {
      int row = node;
      if (second) row = n % 2 == 0 ? n - 1 - node : (node + 1) % n;
      double acc = x[static_cast<size_t>(row)];
      for (const int child : children[static_cast<size_t>(node)]) acc = Add(acc, sum(child));
      return acc;
    };
    return sum(0);
  }

  double Grouped(const Column& x, uint64_t offset) const {
    const int rows = spec_.ranks / spec_.group;
    Column sums;
    for (int g = 0; g < rows; ++g) {
      float acc = 0;
      for (int r = 0; r < spec_.group; ++r)
        acc += static_cast<float>(x[static_cast<size_t>(g * spec_.group + r)]);
      sums.push_back(Round(static_cast<double>(acc)));
    }
    return Ring(sums, Begin(offset, rows), offset);
  }

  double Float(const Column& x) const {
    float acc = 0;
    for (const double v : x) acc += static_cast<float>(v);
    return Round(static_cast<double>(acc));
  }

  double Exact(const Column& x) const {
    ExactSum s;
    for (const double v : x) s.Add(v);
    return s.RoundTo(spec_.dtype, spec_.rounding);
  }

  double Kahan(const Column& x) const {
    double acc = 0;
    double lost = 0;
    for (const double v : x) {
      const double y = Add(v, -lost);
      const double t = Add(acc, y);
      lost = Add(Add(t, -acc), -y);
      acc = t;
    }
    return acc;
  }

  double Stochastic(const Column& x) {
    double acc = x[0];
    for (size_t i = 1; i < x.size(); ++i) {
      const double exact = acc + x[i];
      const double low = RoundToFormat(exact, spec_.dtype, RoundingMode::kDown);
      const double high = RoundToFormat(exact, spec_.dtype, RoundingMode::kUp);
      const double share = high > low ? (exact - low) / (high - low) : 0;
      acc = random_.Uniform() < share ? high : low;
    }
    return acc;
  }

  double ThreeWay(Column x) const {
    while (x.size() > 1) {
      Column next;
      for (size_t i = 0; i < x.size(); i += 3) {
        double acc = x[i];
        for (size_t j = i + 1; j < std::min(i + 3, x.size()); ++j) acc = Add(acc, x[j]);
        next.push_back(acc);
      }
      x = next;
    }
    return x[0];
  }

  double RandomOrder(Column x) {
    for (size_t i = x.size() - 1; i > 0; --i) std::swap(x[i], x[random_.Next() % (i + 1)]);
    double acc = x[0];
    for (size_t i = 1; i < x.size(); ++i) acc = Add(acc, x[i]);
    return acc;
  }

  // Two rings over the even and the odd ranks, then one sum.
  double SplitRing(const Column& x) const {
    Column even, odd;
    for (size_t i = 0; i < x.size(); ++i) (i % 2 == 0 ? even : odd).push_back(x[i]);
    double a = even[0];
    for (size_t i = 1; i < even.size(); ++i) a = Add(a, even[i]);
    double b = odd[0];
    for (size_t i = 1; i < odd.size(); ++i) b = Add(b, odd[i]);
    return Add(a, b);
  }

  static uint64_t GlooPart(uint64_t count, int ranks, uint64_t size) {
    const auto n = static_cast<uint64_t>(ranks);
    const uint64_t bytes = count * size;
    uint64_t segments = std::max<uint64_t>((bytes + (1 << 20) - 1) >> 20, 2 * n);
    segments = (segments + n - 1) / n * n;
    const uint64_t segment_bytes = ((bytes + segments - 1) / segments + size - 1) / size * size;
    return segments / n * segment_bytes / size;
  }

  const ReductionSpec& spec_;
  Random random_;
};

DType DTypeNamed(const std::string& name) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kE5M2}) {
    if (name == DTypeName(t)) return t;
  }
  throw std::runtime_error("unknown dtype " + name);
}

}  // namespace

void Set(ReductionSpec& spec, const std::string& key, const std::string& value) {
  const bool on = value == "on";
  const std::map<std::string, std::function<void()>> setters = {
      {"model", [&] { spec.model = value; }},
      {"ranks", [&] { spec.ranks = std::stoi(value); }},
      {"samples", [&] { spec.samples = std::stoi(value); }},
      {"count", [&] { spec.count = std::stoull(value); }},
      {"dtype", [&] { spec.dtype = DTypeNamed(value); }},
      {"average", [&] { spec.average = value; }},
      {"rounding",
       [&] {
         spec.rounding =
             value == "toward-zero" ? RoundingMode::kTowardZero : RoundingMode::kNearestEven;
       }},
      {"start", [&] { spec.start = std::stoi(value); }},
      {"direction", [&] { spec.direction = std::stoi(value); }},
      {"segments", [&] { spec.segments = value; }},
      {"segment_step", [&] { spec.segment_step = std::stoi(value); }},
      {"order",
       [&] {
         spec.order.clear();
         for (size_t at = 0; at < value.size();) {
           size_t used = 0;
           spec.order.push_back(std::stoi(value.substr(at), &used));
           at += used + 1;
         }
       }},
      {"group", [&] { spec.group = std::stoi(value); }},
      {"channels", [&] { spec.channels = std::stoi(value); }},
      {"chunk", [&] { spec.chunk = std::stoull(value); }},
      {"flush", [&] { spec.flush = on; }},
      {"spread", [&] { spec.spread = std::stod(value); }},
      {"mean", [&] { spec.mean = std::stod(value); }},
      {"scale", [&] { spec.scale = std::stod(value); }},
      {"identical", [&] { spec.identical = std::stod(value); }},
      {"non_finite", [&] { spec.non_finite = std::stod(value); }},
      {"zeros", [&] { spec.zeros = std::stod(value); }},
      {"declare_order", [&] { spec.declare_order = on; }},
      {"record_offsets", [&] { spec.record_offsets = on; }},
      {"record_count", [&] { spec.record_count = on; }},
      {"seed", [&] { spec.seed = std::stoull(value); }},
  };
  const auto found = setters.find(key);
  if (found == setters.end()) throw std::runtime_error("unknown key " + key);
  found->second();
}

ReductionCase SimulateReduction(const ReductionSpec& spec) { return Simulator(spec).Run(); }

}  // namespace plumbline::rules::testing
