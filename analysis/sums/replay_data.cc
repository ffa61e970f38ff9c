#include "analysis/sums/replay_data.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace plumbline::sums {
namespace {

// The exponents that addends may have, so that products of n of them stay within output and input.
struct Span {
  int low;
  int high;
};

Span ExponentsOf(const Target& target) {
  const FloatFormat in = FormatOf(target.input);
  const FloatFormat out = FormatOf(target.output);
  const int factors = HasProducts(target.kind) ? 2 : 1;
  const int room = static_cast<int>(std::ceil(std::log2(target.n))) + 3;
  const int high = std::min(in.max_exponent - room, (out.max_exponent - room) / factors);
  return {std::max(in.min_exponent, out.min_exponent / factors), std::min(high, 20)};
}

double Fit(double x, DType t) {
  const double y = RoundToFormat(x, t);
  return std::isfinite(y) ? y : std::copysign(FormatOf(t).max_finite, x);
}

// |normal| is below 9 in practice, so values are scaled to leave three binades.
double Ordinary(Random* random, const Span& span) {
  return std::ldexp(random->Normal(), std::min(0, span.high - 3));
}

double SpreadOut(Random* random, const Span& span) {
  const int width = std::min(20, (span.high - span.low) / 2);
  const int e = span.high - random->Below(2 * width + 1);
  return std::ldexp(random->Normal() / 8, e);
}

double Tiny(Random* random, const Target& target) {
  const FloatFormat in = FormatOf(target.input);
  const int factors = HasProducts(target.kind) ? 2 : 1;
  const int e = std::max(in.min_exponent, FormatOf(target.output).min_exponent) / factors;
  return std::ldexp(random->Normal(), e - random->Below(4));
}

double Draw(const Target& target, int distribution, Random* random, const Span& span) {
  switch (distribution) {
    case 1:
      return std::ldexp(1 + random->Uniform(), std::min(0, span.high - 1));
    case 2:
    case 3:
      return SpreadOut(random, span);
    case 4:
      return Tiny(random, target);
    default:
      return Ordinary(random, span);
  }
}

std::vector<int> Shuffled(size_t n, Random* random) {
  std::vector<int> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int>(i);
  for (size_t i = n - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(random->Below(static_cast<int>(i) + 1))]);
  }
  return order;
}

// Draws two large scales in exact pairs, and a small one that remains alone.
void Tiers(Addends* addends, const Target& target, const Span& span, Random* random) {
  const int low = std::max(span.low, span.high - 70);
  const int scales[3] = {span.high - 3, (span.high - 3 + low) / 2, low};
  const std::vector<int> order = Shuffled(addends->a.size(), random);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto at = static_cast<size_t>(order[i]);
    const int tier = static_cast<int>(i / 2 % 3);
    const double x = std::ldexp(random->Normal(), scales[tier]);
    addends->b[at] = 1;
    if (tier < 2 && i % 2 == 1) {
      addends->a[at] = -addends->a[static_cast<size_t>(order[i - 1])];
    } else {
      addends->a[at] = Fit(x, target.input);
    }
  }
}

// Makes every second addend almost cancel one at a random distance.
void Cancel(Addends* addends, const Target& target, Random* random) {
  const auto n = static_cast<int>(addends->a.size());
  const std::vector<int> order = Shuffled(addends->a.size(), random);
  for (int i = 0; i + 1 < n; i += 2) {
    const auto x = static_cast<size_t>(order[static_cast<size_t>(i)]);
    const auto y = static_cast<size_t>(order[static_cast<size_t>(i + 1)]);
    const double rest = random->Below(4) == 0 ? 1 + 0x1p-9 * random->Normal() : 1;
    addends->a[y] = Fit(-addends->a[x] * rest, target.input);
    addends->b[y] = addends->b[x];
  }
}

}  // namespace

Addends DrawAddends(const Target& target, int k, Random* random) {
  const int distribution = k % kDistributions;
  const Span span = ExponentsOf(target);
  const auto n = static_cast<size_t>(target.n);
  Addends addends{std::vector<double>(n), std::vector<double>(n, 1.0)};
  for (size_t i = 0; i < n; ++i) {
    addends.a[i] = Fit(Draw(target, distribution, random, span), target.input);
    if (HasProducts(target.kind)) {
      addends.b[i] =
          Fit(Draw(target, distribution == 3 ? 0 : distribution, random, span), target.input);
    }
  }
  if (distribution == 3) Cancel(&addends, target, random);
  if (distribution == 5) Tiers(&addends, target, span, random);
  return addends;
}

}  // namespace plumbline::sums
