#include "tests/rules/support/simulated_reduction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "base/exact_sum.h"
#include "kernels/core/sample_index.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

using Column = std::vector<double>;

RoundingMode ModeOf(const ReductionSpec& spec) {
  return spec.rounding == "toward-zero" ? RoundingMode::kTowardZero : RoundingMode::kNearestEven;
}

std::vector<int> ParseOrder(const std::string& text) {
  std::vector<int> order;
  for (size_t at = 0; at < text.size();) {
    size_t used = 0;
    order.push_back(std::stoi(text.substr(at), &used));
    at += used + 1;
  }
  return order;
}

class Simulator {
 public:
  Simulator(const ReductionSpec& spec, int step)
      : spec_(spec),
        mode_(ModeOf(spec)),
        count_(static_cast<uint64_t>(spec.count)),
        order_(ParseOrder(spec.order)),
        random_(static_cast<uint64_t>(spec.seed) * 1000003 + static_cast<uint64_t>(step)) {}

  ReductionCase Run() {
    ReductionCase c;
    c.ranks = spec_.ranks;
    c.samples = spec_.samples;
    c.input_dtype = c.output_dtype = c.wire_dtype = spec_.dtype;
    c.op = spec_.average == "none" ? v1::ReductionCall::OP_SUM : v1::ReductionCall::OP_AVG;
    c.offsets_given = spec_.record_offsets;
    c.count_given = spec_.record_count;
    c.count = spec_.record_count ? count_ : 0;
    c.channels = static_cast<uint32_t>(spec_.channels);
    c.chunk = static_cast<uint64_t>(spec_.chunk);
    if (spec_.declare_order)
      for (const int rank : order_) c.ring_order.push_back(static_cast<uint32_t>(rank));
    c.inputs.resize(static_cast<size_t>(c.ranks * c.samples));
    const uint64_t key =
        SampleKey("simulated", static_cast<int64_t>(random_.Uniform() * 0x1p53), "", "sum");
    for (int i = 0; i < c.samples; ++i) {
      const uint64_t offset = spec_.record_offsets
                                  ? SampleIndex(key, count_, static_cast<uint64_t>(i))
                                  : static_cast<uint64_t>(i);
      c.offsets.push_back(offset);
      const Column x = InputsOf(i);
      for (int r = 0; r < c.ranks; ++r)
        c.inputs[static_cast<size_t>(r * c.samples + i)] = x[static_cast<size_t>(r)];
      c.output.push_back(Reduce(x, offset));
    }
    return c;
  }

 private:
  double Round(double v) const { return Flush(RoundToFormat(v, spec_.dtype, mode_)); }
  double Flush(double v) const {
    const double least = PowerOfTwo(FormatOf(spec_.dtype).min_exponent);
    return spec_.flush && std::fabs(v) < least ? 0 : v;
  }

  const Column& InputsOf(int i) {
    if (spec_.kinds == 0 || i < spec_.kinds) kinds_.push_back(Inputs());
    return spec_.kinds == 0 ? kinds_.back() : kinds_[static_cast<size_t>(i % spec_.kinds)];
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
      x[Below(x.size())] = bad;
    }
    return x;
  }

  size_t Below(size_t n) { return static_cast<size_t>(random_.Uniform() * static_cast<double>(n)); }

  // Returns one rounded sum in the simulated dtype.
  double Add(double a, double b) const { return AddIn(spec_.dtype, mode_, a, b); }

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
    if (model == "neumaier") return Neumaier(x);
    if (model == "stochastic") return Stochastic(x);
    if (model == "three-way") return ThreeWay(x);
    if (model == "random-order") return RandomOrder(x);
    if (model == "split-ring") return SplitRing(x);
    throw std::runtime_error("unknown model " + model);
  }

  uint64_t Segment(uint64_t offset, int rows) const {
    const auto n = static_cast<uint64_t>(rows);
    if (spec_.segments == "constant") return 0;
    uint64_t part = (count_ + n - 1) / n;
    if (spec_.segments == "gloo") part = GlooPart(count_, rows, DTypeSize(spec_.dtype));
    if (spec_.segments == "chunks") {
      const uint64_t channel = (count_ + static_cast<uint64_t>(spec_.channels) - 1) /
                               static_cast<uint64_t>(spec_.channels);
      const uint64_t in_channel = offset % channel;
      const uint64_t length = std::min(channel, count_ - offset / channel * channel);
      const auto chunk = static_cast<uint64_t>(spec_.chunk);
      const uint64_t loop = chunk * n;
      const uint64_t left = length - in_channel / loop * loop;
      part = left < loop ? std::max<uint64_t>(1, (left + n - 1) / n) : chunk;
      return in_channel % loop / part % n;
    }
    return offset / part % n;
  }

  int Begin(uint64_t offset, int rows) const {
    const auto segment = static_cast<int64_t>(Segment(offset, rows));
    const int64_t at = spec_.start + spec_.segment_step * segment;
    return static_cast<int>((at % rows + rows) % rows);
  }

  // Returns the rank at a position of the ring: one order for all, or one per channel.
  int RankAt(int position, uint64_t offset) const {
    if (order_.empty()) return position;
    const size_t rings = order_.size() / static_cast<size_t>(spec_.ranks);
    const uint64_t channel_length = (count_ + static_cast<uint64_t>(spec_.channels) - 1) /
                                    static_cast<uint64_t>(spec_.channels);
    const size_t ring = rings > 1 ? offset / channel_length % rings : 0;
    return order_[ring * static_cast<size_t>(spec_.ranks) + static_cast<size_t>(position)];
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

  // Sums level by level, neighbours first; an odd one waits.
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

  // The complementary binary trees as in NCCL, from the parent's side (up and down links).
  double DoubleTree(const Column& x, uint64_t offset) const {
    const int n = spec_.ranks;
    const bool second = offset >= (count_ + 1) / 2;
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
    return s.RoundTo(spec_.dtype, mode_);
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

  double Neumaier(const Column& x) const {
    double acc = 0;
    double lost = 0;
    for (const double v : x) {
      const double t = Add(acc, v);
      const bool larger = std::fabs(acc) >= std::fabs(v);
      const double missing = larger ? Add(Add(acc, -t), v) : Add(Add(v, -t), acc);
      lost = Add(lost, missing);
      acc = t;
    }
    return Add(acc, lost);
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
    for (size_t i = x.size() - 1; i > 0; --i) std::swap(x[i], x[Below(i + 1)]);
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
  RoundingMode mode_;
  uint64_t count_;
  std::vector<int> order_;
  std::vector<Column> kinds_;
  Draw random_;
};

}  // namespace

ReductionCase SimulateReduction(const ReductionSpec& spec, int step) {
  return Simulator(spec, step).Run();
}

}  // namespace plumbline::rules::testing
