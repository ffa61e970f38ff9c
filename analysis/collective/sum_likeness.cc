#include "analysis/collective/sum_likeness.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/statistics/statistics.h"
#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

enum class Averages { kAfter, kBefore, kMultipliedBefore, kMultipliedAfter };

// One way of rounding partial sums.
struct Summing {
  DType partial = DType::kBF16;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool tree = false;
  Averages averages = Averages::kAfter;
  int group = 1;  // number of ranks that are first added in f32
};

std::string WordsOf(const Summing& s, bool average) {
  static constexpr const char* kRounding[] = {"", ", to nearest away", ", toward zero", ", down",
                                              ", up"};
  static constexpr const char* kAverages[] = {"", ", divided before", ", times 1/N before",
                                              ", times 1/N after"};
  return absl::StrCat(s.group > 1 ? absl::StrCat("groups of ", s.group, " in f32, then ") : "",
                      DTypeName(s.partial), " partial sums, ",
                      s.tree ? "in pairs" : "one after the other",
                      kRounding[static_cast<size_t>(s.rounding)],
                      average ? kAverages[static_cast<size_t>(s.averages)] : "");
}

// Lists the ways to try. Sums in f32 have no visible bias in the unit in which biases are judged.
// If there is a bias, values were cast to a narrower format.
std::vector<Summing> SummingsFor(const ReductionCase& c) {
  std::vector<DType> partials = {c.wire_dtype};
  if (FormatOf(c.wire_dtype).precision >= 24) partials = {DType::kBF16, DType::kF16};
  std::vector<Summing> all;
  for (const DType t : partials) {
    using enum RoundingMode;
    for (const RoundingMode mode : {kNearestEven, kTowardZero, kUp, kDown})
      all.push_back({t, mode, false});
    for (const RoundingMode mode : {kNearestEven, kTowardZero}) all.push_back({t, mode, true});
    for (const int group : {4, 8}) {
      if (2 * group > c.ranks) continue;
      for (const RoundingMode mode : {kNearestEven, kTowardZero})
        all.push_back({t, mode, false, Averages::kAfter, group});
    }
    if (!c.average()) continue;
    using enum Averages;
    for (const Averages way : {kBefore, kMultipliedBefore, kMultipliedAfter})
      all.push_back({t, kNearestEven, false, way});
  }
  return all;
}

double Enter(const Summing& s, double x, int ranks) {
  x = RoundToFormat(x, s.partial);
  if (s.averages == Averages::kBefore) return RoundToFormat(x / ranks, s.partial);
  if (s.averages != Averages::kMultipliedBefore) return x;
  return RoundToFormat(x * RoundToFormat(1.0 / ranks, s.partial), s.partial);
}

double Leave(const Summing& s, double sum, const ReductionCase& c) {
  if (c.average() && s.averages == Averages::kAfter) sum /= c.ranks;
  if (s.averages == Averages::kMultipliedAfter) sum *= RoundToFormat(1.0 / c.ranks, s.partial);
  return RoundToFormat(sum, c.result_dtype());
}

double Chain(const Summing& s, const std::vector<double>& x) {
  double sum = x[0];
  for (size_t i = 1; i < x.size(); ++i) sum = RoundToFormat(sum + x[i], s.partial, s.rounding);
  return sum;
}

// Sums groups of neighbours. In double, the error is far below the unit of f32.
double GroupedChain(const Summing& s, const std::vector<double>& x) {
  std::vector<double> groups;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % static_cast<size_t>(s.group) == 0) groups.push_back(0);
    groups.back() += x[i];
  }
  for (double& sum : groups) sum = RoundToFormat(sum, s.partial, s.rounding);
  return Chain(s, groups);
}

// Sums addends that are already rounded and scaled. Overwrites them.
double Sum(const Summing& s, std::vector<double>& x) {
  if (s.group > 1) return GroupedChain(s, x);
  if (!s.tree) return Chain(s, x);
  for (size_t n = x.size(); n > 1; n = (n + 1) / 2) {
    for (size_t i = 0; i < n / 2; ++i)
      x[i] = RoundToFormat(x[2 * i] + x[2 * i + 1], s.partial, s.rounding);
    if (n % 2 == 1) x[n / 2] = x[n - 1];
  }
  return x[0];
}

// Draws orders with SplitMix64, so that they are equal on every host.
class Orders {
 public:
  explicit Orders(size_t n) : rows_(n) { std::iota(rows_.begin(), rows_.end(), 0); }
  const std::vector<int>& Next() {
    for (size_t i = rows_.size(); i > 1; --i) std::swap(rows_[i - 1], rows_[Draw() % i]);
    return rows_;
  }

 private:
  uint64_t Draw() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::vector<int> rows_;
  uint64_t state_ = 1;
};

// The range of sums of one element, for one way of rounding.
struct Span {
  double low = INFINITY, high = -INFINITY;
  double error = 0;                           // mean error, in the unit of biases
  double least = INFINITY, most = -INFINITY;  // range of the errors, in the same unit
  double place = 0;                           // V of the result
  // Number of sums that are closer to the exact sum than the result, equally close, and farther.
  int nearer = 0, as_near = 0, farther = 0;
  bool finite = true;

  // Takes one of kOrders sums, with the recorded result.
  void Take(double y, double result, double exact) {
    low = std::min(low, y);
    high = std::max(high, y);
    finite &= std::isfinite(y);
    place += ((y < result) + 0.5 * (y == result)) / (SumLikeness::kOrders + 1);
    const double off = std::fabs(y - exact), own = std::fabs(result - exact);
    nearer += off < own;
    as_near += off == own;
    farther += off > own;
  }
  // Takes the error of one of these sums.
  void TakeError(double e) {
    error += e / SumLikeness::kOrders;
    least = std::min(least, e);
    most = std::max(most, e);
  }
  double nearest() const { return nearer == 0 ? 1.0 / (1 + as_near) : 0; }
  double farthest() const { return farther == 0 ? 1.0 / (1 + as_near) : 0; }
  // Returns true if `y` is within three times the span, plus an ulp.
  bool Holds(double y, DType result) const {
    const double room = high - low + UlpOf(std::max(std::fabs(low), std::fabs(high)), result);
    return y >= low - room && y <= high + room;
  }
};

struct Element {
  int32_t sample = -1;
  double y = 0, exact = 0;
  std::vector<Span> spans;  // one span per way of rounding
};

// If a value is not finite, `spans` of the result is empty.
Element Simulate(const ReductionCase& c, int32_t sample, const std::vector<Summing>& all,
                 Orders& orders) {
  Element out{sample, c.output[static_cast<size_t>(sample)], 0, {}};
  const uint32_t divisor = c.average() ? static_cast<uint32_t>(c.ranks) : 1;
  ExactSum exact;
  double squares = 0;
  for (int r = 0; r < c.ranks; ++r) {
    const double x = RoundToFormat(c.input(r, sample), c.wire_dtype);
    if (!std::isfinite(x)) return out;
    exact.Add(x);
    squares += x * x;
  }
  out.exact = exact.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor);
  std::vector<std::vector<double>> entered(all.size());
  for (size_t w = 0; w < all.size(); ++w) {
    for (int r = 0; r < c.ranks; ++r)
      entered[w].push_back(Enter(all[w], c.input(r, sample), c.ranks));
  }
  std::vector<Span> spans(all.size());
  std::vector<double> x(static_cast<size_t>(c.ranks));
  const double unit = BiasUnitScale(c.result_dtype());
  for (int trial = 0; trial < SumLikeness::kOrders; ++trial) {
    const std::vector<int>& rows = orders.Next();
    for (size_t w = 0; w < all.size(); ++w) {
      for (size_t i = 0; i < rows.size(); ++i) x[i] = entered[w][static_cast<size_t>(rows[i])];
      const double y = Leave(all[w], Sum(all[w], x), c);
      spans[w].Take(y, out.y, out.exact);
      spans[w].TakeError(unit * ErrorOf(y, exact, squares, c.result_dtype(), divisor).e);
    }
  }
  for (Span& span : spans)
    span.place = (span.place + 0.5 / (SumLikeness::kOrders + 1) - 0.5) * (out.exact < 0 ? -1 : 1);
  const bool finite = std::isfinite(out.y) && std::all_of(spans.begin(), spans.end(),
                                                          [](const Span& s) { return s.finite; });
  if (finite) out.spans = std::move(spans);
  return out;
}

double MedianSize(const std::vector<Element>& elements) {
  std::vector<double> sizes;
  for (const Element& e : elements) sizes.push_back(std::fabs(e.exact));
  if (sizes.empty()) return 0;
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  return *middle;
}

// Returns n KL(share, 1/20) if the share is above 1/20, else 0.
double Surprise(double of, double n) {
  const double p = 1.0 / (SumLikeness::kOrders + 1), q = std::min(of / n, 1.0);
  if (!(q > p)) return 0;
  return n * (q * std::log(q / p) + (q < 1 ? (1 - q) * std::log((1 - q) / (1 - p)) : 0));
}

// ---- what else the results look like ----

// Returns the significand bits that x != 0 needs, including the leading one.
int BitsOf(double x) {
  int exponent = 0;
  const auto m = static_cast<uint64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
  return 53 - std::countr_zero(m);
}

bool FewOf(size_t some, size_t all) { return 20 * some <= all; }

// If every result outside the ranges was clipped to one magnitude, returns it, else 0.
double CutAt(const std::vector<Element>& elements, size_t way, DType result) {
  double most = 0;
  size_t outside = 0;
  for (const Element& e : elements) most = std::max(most, std::fabs(e.y));
  for (const Element& e : elements) {
    if (e.spans[way].Holds(e.y, result)) continue;
    if (std::fabs(e.y) != most || !(std::fabs(e.exact) > most) || e.y * e.exact < 0) return 0;
    ++outside;
  }
  return outside > 1 ? most : 0;
}

// If the results, divided by one factor, are sums, returns this factor, else 0.
double FactorOf(const std::vector<Element>& elements, size_t way, DType result) {
  double products = 0, squares = 0, largest = 0;
  for (const Element& e : elements) largest = std::max(largest, std::fabs(e.exact));
  if (!(largest > 0)) return 0;
  for (const Element& e : elements) {
    const double middle = (e.spans[way].low + e.spans[way].high) / 2 / largest;
    products += e.y / largest * middle;
    squares += middle * middle;
  }
  const double factor = products / squares;
  if (!(std::fabs(factor) > 0) || !std::isfinite(factor)) return 0;
  // The spans hide as large an error, so near 1 only the rounding of the result may be left.
  const bool near = std::fabs(factor - 1) < 0.1;
  const auto outside = std::count_if(elements.begin(), elements.end(), [&](const Element& e) {
    return near ? !(std::fabs(e.y - factor * e.exact) <= UlpOf(e.y, result))
                : !e.spans[way].Holds(e.y / factor, result);
  });
  return FewOf(static_cast<size_t>(outside), elements.size()) ? factor : 0;
}

// Returns true if the results are one rank's inputs, or all zero.
bool NeverReduced(const ReductionCase& c, const std::vector<Element>& elements) {
  const auto all = [&](auto test) { return std::all_of(elements.begin(), elements.end(), test); };
  if (all([](const Element& e) { return e.y == 0; })) return true;
  for (int r = 0; r < c.ranks; ++r) {
    if (all([&](const Element& e) { return e.y == c.input(r, e.sample); })) return true;
  }
  return false;
}

std::string ExplanationFor(const ReductionCase& c, const std::vector<Element>& elements,
                           size_t way) {
  if (NeverReduced(c, elements) || (!c.differing_ranks.empty() && !c.output_majority)) {
    return "not-shared: the ranks got different results, and the judged ones are not the sums (a "
           "reduce to another rank, a scatter); record the output on the rank that gets it";
  }
  const DType result = c.result_dtype();
  // A way of rounding with wide spans hides a clip, so tries all ways.
  double limit = 0;
  for (size_t w = 0; w < elements.front().spans.size() && limit == 0; ++w)
    limit = CutAt(elements, w, result);
  if (limit != 0) {
    return absl::StrFormat(
        "clipped: the results that are not sums are clipped to magnitude %.9g; record the output "
        "before the clip",
        limit);
  }
  if (const double factor = FactorOf(elements, way, result); factor != 0) {
    return absl::StrFormat(
        "common-factor: the elements are sums times %.4g (a division, or a clip of the norm); "
        "declare postscale, or record the output before the scaling",
        factor);
  }
  return "unlike-sums: the results differ from sums of these inputs in random orders. If the "
         "values are sent compressed, declare algorithm (powersgd, one-bit, top-k, int8-scaled, "
         "fp8-scaled). If the ranks are added in a special order, declare ring_order. Otherwise "
         "record the output as the collective returns it";
}

}  // namespace

void SumLikeness::Take(const ReductionCase& c, std::span<const int32_t> columns) {
  constexpr size_t kAddends = 1 << 15;
  if (elements_ >= kEnough || columns.empty() || c.ranks < 2) return;
  const std::vector<Summing> all = SummingsFor(c);
  if (ways_.empty()) {
    for (const Summing& s : all) {
      ways_.push_back({WordsOf(s, c.average())});
      ways_.back().precision = FormatOf(s.partial).precision;
    }
  }
  if (ways_.size() != all.size())
    return;  // the wire dtype of the site changed; only calls with the first one are judged
  const size_t most = std::min<size_t>(
      std::max<size_t>(kAddends / static_cast<size_t>(c.ranks), 16), kEnough - elements_);
  const size_t stride = (columns.size() + most - 1) / most;
  Orders orders(static_cast<size_t>(c.ranks));
  std::vector<Element> elements;
  for (size_t i = 0; i < columns.size(); i += stride) {
    Element element = Simulate(c, columns[i], all, orders);
    if (!element.spans.empty()) elements.push_back(std::move(element));
  }
  elements_ += elements.size();
  const double median = MedianSize(elements);
  size_t best = 0;
  std::vector<size_t> outside(all.size());
  for (size_t w = 0; w < all.size(); ++w) {
    for (const Element& e : elements) {
      const Span& span = e.spans[w];
      outside[w] += !span.Holds(e.y, c.result_dtype());
      ways_[w].sum += span.error;
      ways_[w].range += span.most - span.least;
      ways_[w].squares += span.error * span.error;
      ways_[w].places += span.place;
      ways_[w].apart += std::fabs(span.place);
      ways_[w].turned += std::fabs(e.exact) > median ? span.place : -span.place;
      ways_[w].nearest += span.nearest();
      ways_[w].farthest += span.farthest();
    }
    ways_[w].outside += outside[w];
    if (outside[w] < outside[best]) best = w;
  }
  for (const Element& e : elements) bits_ = e.y == 0 ? bits_ : std::max(bits_, BitsOf(e.y));
  if (elements.empty()) return;
  explanation_ = ExplanationFor(c, elements, best);
  if (explanation_.starts_with("unlike-sums") && Coarse(ways_[best])) {
    explanation_ = absl::StrFormat(
        "stored-narrower: every result has at most %d significand bits, fewer than its sum; record "
        "the output before it is stored, or declare algorithm",
        bits_);
  }
}

bool SumLikeness::Coarse(const Way& way) const {
  return elements_ >= kFewOnGrid && bits_ + 2 <= way.precision;
}

bool SumLikeness::FallsAmong(const Way& way) const {
  const auto n = static_cast<double>(elements_);
  const double most = kBiasDeviations * std::sqrt(n / 12);
  return std::fabs(way.places) <= most && std::fabs(way.turned) <= most &&
         way.apart <= n / 4 + most / 2 && Surprise(way.nearest, n) <= kSurprise &&
         Surprise(way.farthest, n) <= kSurprise;
}

bool SumLikeness::Fits(const Way& way) const {
  return way.outside * 20 <= elements_ && !Coarse(way) && FallsAmong(way);
}

const SumLikeness::Way* SumLikeness::Find(double mean, double half_width) const {
  const auto n = static_cast<double>(elements_);
  const double side = mean < 0 ? -1 : 1;
  const Way* found = nullptr;
  for (const Way& way : ways_) {
    if (elements_ == 0 || !Fits(way)) continue;
    const double own = side * way.sum / n;
    const double spread = std::sqrt(std::max(0.0, way.squares / n - own * own) / n);
    const bool milder = own + kBiasDeviations * spread < std::fabs(mean) - half_width;
    if (milder || !(own > 0 && way.range / n <= own)) continue;
    if (found == nullptr || way.outside < found->outside) found = &way;
  }
  return found;
}

bool SumLikeness::Explains(double mean, double half_width) const {
  return Find(mean, half_width) != nullptr;
}

std::string SumLikeness::Words(double mean, double half_width) const {
  const Way* way = Find(mean, half_width);
  if (way == nullptr) return "";
  return absl::StrFormat("%s, in random orders, have an error of %+.3g", way->words,
                         way->sum / static_cast<double>(elements_));
}

std::string SumLikeness::Explanation() const { return explanation_; }

}  // namespace plumbline::analysis
