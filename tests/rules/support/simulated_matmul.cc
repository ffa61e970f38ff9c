#include "tests/rules/support/simulated_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::rules::testing {
namespace {

using Sum = MatmulModel::Sum;
__extension__ typedef __int128 Wide;

double RoundedOnce(std::initializer_list<double> terms, DType t, RoundingMode mode) {
  ExactSum sum;
  for (const double x : terms) {
    if (!std::isfinite(x)) {
      double plain = 0;
      for (const double y : terms) plain += y;
      return plain;
    }
    sum.Add(x);
  }
  return sum.RoundTo(t, mode);
}

// A factor as sign * significand * 2^exponent, where the significand is an integer of the format's
// bits.
struct Parts {
  int64_t significand;
  int exponent;  // exponent of the leading bit: value = significand * 2^(exponent - p + 1)
  int precision;
};

Parts Split(double x, DType dtype) {
  const FloatFormat f = FormatOf(dtype);
  int e = 0;
  std::frexp(x, &e);
  e = x == 0 ? f.min_exponent : std::max(e - 1, f.min_exponent);
  return {static_cast<int64_t>(std::llround(std::ldexp(x, f.precision - 1 - e))), e, f.precision};
}

// Returns |n| 2^shift cut to an integer, toward zero or minus infinity.
Wide Shifted(Wide n, int shift, bool floored) {
  if (shift >= 0) return shift > 60 ? n : n * (static_cast<Wide>(1) << shift);
  if (-shift > 120) return floored && n < 0 ? -1 : 0;
  const Wide unit = static_cast<Wide>(1) << -shift;
  Wide q = n / unit;
  if (floored && n % unit != 0 && n < 0) --q;
  return q;
}

class Reference {
 public:
  Reference(const MatmulModel& m, const double* a, const double* b, int inner, DType input)
      : m_(m), input_(m.cut == InputCut::kNone ? input : DType::kF32) {
    for (int k = 0; k < inner; ++k) {
      a_.push_back(CutInput(m.cut, a[k]));
      b_.push_back(CutInput(m.cut, b[k]));
    }
  }

  double Whole(double c) const {
    const int inner = static_cast<int>(a_.size());
    const double start = m_.addend_last ? 0 : c;
    double acc = start;
    if (m_.part > 0) {
      bool first = start == 0;
      for (int at = 0; at < inner; at += m_.part, first = false) {
        const double part = RoundToFormat(Run(at, std::min(at + m_.part, inner), 0), m_.part_dtype);
        acc = first ? part : RoundedOnce({acc, part}, m_.reduce_dtype, RoundingMode::kNearestEven);
      }
    } else if (m_.promote > 0) {
      for (int at = 0; at < inner; at += m_.promote) {
        const double part = Run(at, std::min(at + m_.promote, inner), 0);
        acc = RoundedOnce({acc, part}, DType::kF32, RoundingMode::kNearestEven);
      }
    } else {
      acc = Run(0, inner, start);
    }
    if (!m_.addend_last) return acc;
    return RoundedOnce({acc, c}, m_.accumulator, RoundingMode::kNearestEven);
  }

 private:
  double Product(int k) const { return a_[static_cast<size_t>(k)] * b_[static_cast<size_t>(k)]; }
  double Once(std::initializer_list<double> terms) const {
    return RoundedOnce(terms, m_.accumulator, m_.rounding);
  }

  double Run(int first, int last, double start) const {
    if (m_.sum == Sum::kExact) {
      ExactSum sum;
      for (int k = first; k < last; ++k) sum.Add(Product(k));
      sum.Add(start);
      return sum.RoundTo(m_.accumulator, m_.rounding);
    }
    if (m_.compensation != MatmulModel::Compensation::kNone) return Compensated(start);
    if (m_.sum == Sum::kSequential) return Fold(first, last, start, m_.fused);
    if (m_.sum == Sum::kPairwise) {
      const double sum = Tree(first, last);
      return start == 0 ? sum : Once({start, sum});
    }
    double acc = start;
    for (int at = first; at < last; at += m_.block)
      acc = Kept(Block(at, std::min(at + m_.block, last), acc));
    return acc;
  }

  // Returns x cut toward zero to the bits that the accumulator keeps.
  double Kept(double x) const {
    if (m_.kept == 0 || x == 0 || !std::isfinite(x)) return x;
    const double unit = std::ldexp(1, std::ilogb(x) - m_.kept + 1);
    return std::trunc(x / unit) * unit;
  }

  double Fold(int first, int last, double acc, bool fused) const {
    for (int k = first; k < last; ++k) acc = Once({acc, fused ? Product(k) : Once({Product(k)})});
    return acc;
  }

  double Compensated(double sum) const {
    double carried = 0;
    const bool kahan = m_.compensation == MatmulModel::Compensation::kKahan;
    for (int k = 0; k < static_cast<int>(a_.size()); ++k) {
      const double x = Once({Product(k)}), y = kahan ? Once({x, -carried}) : x;
      const double next = Once({sum, y});
      if (kahan) {
        carried = Once({Once({next, -sum}), -y});
      } else {
        const double large = std::abs(sum) >= std::abs(x) ? sum : x;
        const double small = std::abs(sum) >= std::abs(x) ? x : sum;
        carried = Once({carried, Once({Once({large, -next}), small})});
      }
      sum = next;
    }
    return kahan ? sum : Once({sum, carried});
  }

  double Tree(int first, int last) const {
    if (m_.tree == MatmulModel::Tree::kHalves) {
      if (last - first <= m_.leaf) return Fold(first, last, 0, false);
      const int middle = first + (last - first) / 2;
      return Once({Tree(first, middle), Tree(middle, last)});
    }
    std::vector<double> level;
    for (int at = first; at < last; at += m_.leaf)
      level.push_back(Fold(at, std::min(at + m_.leaf, last), 0, false));
    while (level.size() > 1) {
      std::vector<double> next;
      for (size_t i = 0; i < level.size(); i += 2)
        next.push_back(i + 1 < level.size() ? Once({level[i], level[i + 1]}) : level[i]);
      level = next;
    }
    return level[0];
  }

  // Uses integers only.
  double Block(int first, int last, double acc) const {
    if (!std::isfinite(acc)) return acc;
    const int none = -(1 << 20);
    int largest = none;
    for (int k = first; k < last; ++k) {
      if (Product(k) != 0) largest = std::max(largest, Exponent(k));
    }
    const Parts held = Split(acc, m_.accumulator);
    if (m_.addend_inside && acc != 0) largest = std::max(largest, held.exponent);
    if (largest == none) return acc;
    const int unit = largest - m_.fraction_bits;
    Wide sum = 0;
    for (int k = first; k < last; ++k) {
      if (Product(k) == 0) continue;
      const Parts x = Split(a_[static_cast<size_t>(k)], input_);
      const Parts y = Split(b_[static_cast<size_t>(k)], input_);
      const int low = x.exponent - x.precision + 1 + y.exponent - y.precision + 1;
      sum += Shifted(static_cast<Wide>(x.significand) * y.significand, low - unit, m_.floored);
    }
    if (m_.addend_inside && acc != 0)
      sum += Shifted(held.significand, held.exponent - held.precision + 1 - unit, m_.floored);
    const double block =
        RoundToFormat(std::ldexp(static_cast<double>(sum), unit), m_.accumulator, m_.rounding);
    return m_.addend_inside ? block : Once({acc, block});
  }

  int Exponent(int k) const {
    return Split(a_[static_cast<size_t>(k)], input_).exponent +
           Split(b_[static_cast<size_t>(k)], input_).exponent;
  }

  MatmulModel m_;
  DType input_;
  std::vector<double> a_, b_;
};

// ---- data --------------------------------------------------------------------------------------

class MatmulDraw {
 public:
  explicit MatmulDraw(const MatmulSpec& spec) : spec_(spec), rng_(spec.seed * 7919 + 17) {}

  double Next(int k) {
    const FloatFormat f = FormatOf(spec_.input);
    double x = normal_(rng_);
    switch (spec_.values) {
      case Values::kNormal:
        break;
      case Values::kPositive:
        x = std::abs(x) + 0.1;
        break;
      case Values::kSpread: {
        const int most = std::min(f.max_exponent / 2 - 12, 40);
        const int least = std::max(f.min_exponent, -60);
        std::uniform_int_distribution<int> e(least, std::max(most, least + 1));
        x = std::ldexp(x, e(rng_));
        break;
      }
      case Values::kCancelling:
        x = std::abs(x) + 0.5;
        if (k >= spec_.inner / 2) x = -x;
        break;
      case Values::kSubnormal:
        x = std::ldexp(x, f.min_exponent + static_cast<int>(rng_() % 4) - 2);
        break;
      case Values::kFilled:
        x = std::clamp(x * f.max_finite / 3, -f.max_finite, f.max_finite);
        break;
      case Values::kIntegers:
        x = static_cast<double>(static_cast<int>(rng_() % 7)) - 3;
        break;
    }
    return RoundToFormat(x, spec_.input);
  }

 private:
  MatmulSpec spec_;
  std::mt19937_64 rng_;
  std::normal_distribution<double> normal_;
};

// Fills a tensor with values that the dtype can represent.
void Fill(v1::Tensor* tensor, DType dtype, std::vector<int64_t> shape,
          const std::vector<double>& values) {
  tensor->set_dtype(static_cast<v1::DType>(dtype));
  for (const int64_t n : shape) tensor->add_shape(n);
  const size_t size = DTypeSize(dtype);
  std::string& data = *tensor->mutable_data();
  data.resize(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<float>(values[i]);
    uint32_t bits = 0;
    switch (dtype) {
      case DType::kF16:
        bits = FloatToF16(x);
        break;
      case DType::kBF16:
        bits = FloatToBF16(x);
        break;
      case DType::kE4M3:
        bits = FloatToE4M3(x);
        break;
      case DType::kE5M2:
        bits = FloatToE5M2(x);
        break;
      default:
        std::memcpy(&bits, &x, sizeof bits);
    }
    std::memcpy(&data[i * size], &bits, size);
  }
}

}  // namespace

v1::Matmul SimulatedMatmul::Evidence() const {
  v1::Matmul matmul;
  matmul.mutable_config()->set_inner(static_cast<uint64_t>(spec.inner));
  v1::MatmulSample& sample = *matmul.mutable_sample();
  Fill(sample.mutable_a(), spec.input, {spec.samples, spec.inner}, a);
  Fill(sample.mutable_b(), spec.input, {spec.samples, spec.inner}, b);
  Fill(sample.mutable_d(), spec.output, {spec.samples}, d);
  if (!c.empty()) Fill(sample.mutable_c(), spec.output, {spec.samples}, c);
  return matmul;
}

SimulatedMatmul Factors(const MatmulSpec& spec) {
  SimulatedMatmul made{.spec = spec, .a = {}, .b = {}, .c = {}, .d = {}};
  MatmulDraw draw(spec);
  for (int i = 0; i < spec.samples; ++i) {
    for (int k = 0; k < spec.inner; ++k) {
      made.a.push_back(draw.Next(k));
      // For cancelling products only one factor changes sign.
      const double y = draw.Next(k);
      made.b.push_back(spec.values == Values::kCancelling ? std::abs(y) : y);
    }
    if (spec.addend) made.c.push_back(RoundToFormat(draw.Next(0), spec.output));
  }
  return made;
}

SimulatedMatmul Simulate(const MatmulSpec& spec, const MatmulModel& model) {
  SimulatedMatmul made = Factors(spec);
  for (int i = 0; i < spec.samples; ++i) {
    const double sum =
        ReferenceSum(model, made.RowA(i), made.RowB(i), spec.inner, spec.input, made.Addend(i));
    made.d.push_back(RoundToFormat(sum, spec.output, model.store));
  }
  return made;
}

SimulatedMatmul Simulate(const MatmulSpec& spec, const DotFunction& dot) {
  SimulatedMatmul made = Factors(spec);
  for (int i = 0; i < spec.samples; ++i) {
    std::vector<double> products;
    for (int k = 0; k < spec.inner; ++k) products.push_back(made.RowA(i)[k] * made.RowB(i)[k]);
    made.d.push_back(RoundToFormat(dot(products, made.Addend(i)), spec.output));
  }
  return made;
}

double ReferenceSum(const MatmulModel& model, const double* a, const double* b, int inner,
                    DType input, double c) {
  return Reference(model, a, b, inner, input).Whole(c);
}

}  // namespace plumbline::rules::testing
