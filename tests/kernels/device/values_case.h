// Elements of every dtype that are difficult for statistics, and views of them with unusual
// strides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "base/tensor_view.h"

namespace plumbline {

inline constexpr DType kFloatingTypes[] = {DType::kF64,  DType::kF32,  DType::kF16,
                                           DType::kBF16, DType::kE4M3, DType::kE5M2};
inline constexpr DType kIntegerTypes[] = {DType::kI64, DType::kI32, DType::kI16,
                                          DType::kI8,  DType::kU64, DType::kU32,
                                          DType::kU16, DType::kU8,  DType::kBool};

// Returns the code of x, rounded to nearest, in a floating dtype.
inline uint64_t CodeOf(double x, DType t) {
  switch (t) {
    case DType::kF64:
      return __builtin_bit_cast(uint64_t, x);
    case DType::kF32:
      return __builtin_bit_cast(uint32_t, static_cast<float>(x));
    case DType::kF16:
      return FloatToF16(static_cast<float>(RoundToFormat(x, t)));
    case DType::kBF16:
      return FloatToBF16(static_cast<float>(RoundToFormat(x, t)));
    case DType::kE4M3:
      return FloatToE4M3(static_cast<float>(RoundToFormat(x, t)));
    default:
      return FloatToE5M2(static_cast<float>(RoundToFormat(x, t)));
  }
}

enum class Kind {
  kNormal,    // like weights
  kPositive,  // no zeros, one sign
  kNegative,
  kBits,        // any code: NaN, infinities, subnormals
  kFinite,      // any finite code: the whole range
  kTiny,        // subnormals and the smallest normals
  kZeros,       // of both signs, and few others
  kCancelling,  // x, -x and small remainders
  kTies,        // at and close to the boundaries of rounding
  kNonFinite,   // nothing else
  kFull,        // one sign and the largest fractions, which fill sums; some 2^10 to 2^40 smaller
  kHuge,        // the largest values, with and without sign
  kCount,
};

class ValuesMaker {
 public:
  explicit ValuesMaker(uint64_t seed) : random_(seed) {}

  // Returns n dense elements.
  std::vector<std::byte> Make(DType t, Kind kind, int64_t n) {
    const size_t size = DTypeSize(t);
    std::vector<std::byte> out(static_cast<size_t>(n) * size);
    uint64_t last = 0;
    for (int64_t i = 0; i < n; ++i) {
      uint64_t code = IsFloating(t) ? Code(t, kind) : random_();
      if (!IsFloating(t) && random_() % 5 == 0) code = 0;
      if (kind == Kind::kCancelling && i % 2 == 1 && random_() % 16 != 0) {
        code = last ^ uint64_t { 1 } << (8 * size - 1);
      }
      last = code;
      std::memcpy(out.data() + static_cast<size_t>(i) * size, &code, size);
    }
    return out;
  }

 private:
  double Normal() { return std::normal_distribution<double>(0, 1)(random_); }

  uint64_t Finite(DType t) {
    for (;;) {
      const uint64_t code = random_();
      if (Exponent(code, t) != Mask(t) && !(t == DType::kE4M3 && (code & 0x7f) == 0x7f)) {
        return code;
      }
      if (t == DType::kE4M3 && (code & 0x7f) != 0x7f) return code;
    }
  }
  static int FractionBits(DType t) { return FormatOf(t).precision - 1; }
  static uint64_t Mask(DType t) {
    return (uint64_t{1} << (8 * DTypeSize(t) - 1 - static_cast<size_t>(FractionBits(t)))) - 1;
  }
  static uint64_t Exponent(uint64_t code, DType t) { return (code >> FractionBits(t)) & Mask(t); }

  uint64_t Code(DType t, Kind kind) {
    const FloatFormat f = FormatOf(t);
    const uint64_t sign = random_() << (8 * DTypeSize(t) - 1);
    const uint64_t below_sign = (uint64_t{1} << (8 * DTypeSize(t) - 1)) - 1;
    switch (kind) {
      case Kind::kNormal:
        return CodeOf(0.02 * Normal(), t);
      case Kind::kPositive:
        return CodeOf(1 + std::abs(Normal()), t);
      case Kind::kNegative:
        return CodeOf(-1 - std::abs(Normal()), t);
      case Kind::kBits:
        return random_() % 3 == 0 ? random_() : Finite(t);
      case Kind::kFinite:
      case Kind::kCancelling:
        return Finite(t);
      case Kind::kTiny:
        return sign | (random_() % (uint64_t{3} << FractionBits(t)));
      case Kind::kZeros:
        return random_() % 50 == 0 ? Finite(t) : sign;
      case Kind::kTies: {
        constexpr DType kFormats[] = {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};
        const FloatFormat into = FormatOf(kFormats[random_() % 4]);
        const double half = PowerOfTwo(into.min_exponent - into.precision);
        const double places[] = {half,
                                 2 * half,
                                 PowerOfTwo(into.min_exponent) - half,
                                 PowerOfTwo(into.min_exponent),
                                 into.max_finite,
                                 into.max_finite + PowerOfTwo(into.max_exponent - into.precision)};
        const double scale =
            random_() % 2 == 0 ? 1.0 : PowerOfTwo(-static_cast<int>(random_() % 40));
        const uint64_t code = CodeOf(places[random_() % 6] * scale, t) & below_sign;
        const uint64_t moved = code + random_() % 3 - 1;
        return sign | (moved & below_sign);
      }
      case Kind::kFull: {
        const int down = random_() % 200 == 0 ? 10 + static_cast<int>(random_() % 31) : 0;
        const double full = 2 - PowerOfTwo(1 - f.precision);
        return CodeOf(full * PowerOfTwo(-down), t);
      }
      case Kind::kNonFinite:
        if (t == DType::kE4M3) return sign | 0x7f;
        return sign | Mask(t) << FractionBits(t) | (random_() % 2 == 0 ? 0 : 1);
      default:
        return CodeOf(random_() % 3 == 0 ? -f.max_finite : f.max_finite, t);
    }
  }

  std::mt19937_64 random_;
};

// A view of elements, and the same elements in C order.
struct ValuesCase {
  std::vector<std::byte> storage;  // the view points into it, not always aligned
  TensorView view;
  std::vector<std::byte> dense;
};

// Returns the C-ordered elements of a view.
inline std::vector<std::byte> DenseBytes(const TensorView& v) {
  const size_t size = DTypeSize(v.dtype);
  std::vector<std::byte> out;
  const int64_t n = v.elements();
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i;
    int64_t offset = 0;
    for (int a = v.rank - 1; a >= 0; --a) {
      const auto axis = static_cast<size_t>(a);
      offset += rest % v.shape[axis] * v.stride[axis];
      rest /= v.shape[axis];
    }
    const auto* from = static_cast<const std::byte*>(v.data) + offset * static_cast<int64_t>(size);
    out.insert(out.end(), from, from + size);
  }
  return out;
}

// Lays out `dense` elements according to layout % 6: in place, misaligned, transposed, backwards,
// every other element of a wider view, repeated along a new axis (which changes the elements).
inline ValuesCase Lay(DType t, std::vector<std::byte> elements, int layout) {
  const size_t size = DTypeSize(t);
  const auto n = static_cast<int64_t>(elements.size() / size);
  ValuesCase c;
  const auto step = static_cast<int64_t>(size);
  if (layout % 6 == 4) {
    c.storage.resize(elements.size() * 2);
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(c.storage.data() + 2 * i * step, elements.data() + i * step, size);
    }
    c.view = TensorView::Dense(c.storage.data(), t, n);
    c.view.stride[0] = 2;
  } else if (layout % 6 == 1) {
    c.storage.resize(elements.size() + 1);
    if (!elements.empty()) std::memcpy(c.storage.data() + 1, elements.data(), elements.size());
    c.view = TensorView::Dense(c.storage.data() + 1, t, n);
  } else {
    c.storage = std::move(elements);
    c.view = TensorView::Dense(c.storage.data(), t, n);
  }
  switch (layout % 6) {
    case 2: {
      int64_t rows = 1;
      for (int64_t r = 2; r <= 7; ++r) {
        if (n % r == 0) rows = r;
      }
      c.view = TensorView::Dense(c.storage.data(), t, rows, n / rows, 1);
      std::swap(c.view.shape[0], c.view.shape[1]);
      std::swap(c.view.stride[0], c.view.stride[1]);
      break;
    }
    case 3:
      c.view.data = c.storage.data() + (n > 0 ? n - 1 : 0) * step;
      c.view.stride[0] = -1;
      break;
    case 5:
      c.view = TensorView::Dense(c.storage.data(), t, 3, n);
      c.view.stride[0] = 0;
      break;
    default:
      break;
  }
  c.dense = DenseBytes(c.view);
  return c;
}

}  // namespace plumbline
