// One chunk of a floating tensor, as words of its value's bits, added to totals. The loops are
// plain so that compilers vectorise them; tensor_stats_host.cc compiles them for several
// instruction sets, and as all of it is integer work they cannot differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/tensor_totals.h"

namespace plumbline {

inline constexpr int kChunk =
    2048;  // elements; a multiple of the scaled blocks and, in bytes, of the digest's
inline constexpr int kGroup = 32;  // elements of the shortest scaled block
inline constexpr int kGroups = kChunk / kGroup;

// Counts, sums of fractions and of their squares by sign and exponent field. The fields of a word
// select a bin, so adding a value is two additions, exact.
template <typename W>
class ExponentBins;

template <>
class ExponentBins<uint32_t> {
 public:
  // 2^17 values: their number takes 18 bits, the fractions' sum 40, that of the squares 63.
  static constexpr int kMostValues = 1 << 17;

  void Add(const uint32_t* words, int n) {
    // Two sets, so that neighbours of like exponent do not wait for each other's store.
    for (int i = 0; i < n; i += 2) {
      AddOne(words[i], bins_[0]);
      AddOne(words[i + 1], bins_[1]);
    }
  }

  // f(bin, values, sum of fractions, sum of their squares) for every bin in use; clears.
  template <typename F>
  void Drain(F f) {
    for (size_t i = 0; i < kBins; ++i) {
      const uint64_t packed = bins_[0][i].packed + bins_[1][i].packed;
      if (packed == 0) continue;
      f(i, packed >> kFractionSumBits, Uint128{packed & ((1ull << kFractionSumBits) - 1)},
        Uint128{bins_[0][i].squares + bins_[1][i].squares});
      bins_[0][i] = bins_[1][i] = Bin{};
    }
  }

 private:
  static constexpr size_t kBins = 512;
  static constexpr int kFractionSumBits = 40;
  struct Bin {
    uint64_t packed;  // count << 40 | sum of fractions
    uint64_t squares;
  };

  static void AddOne(uint32_t word, Bin* bins) {
    const uint64_t fraction = word & kFractionMask<uint32_t>;
    Bin& bin = bins[word >> 23];
    bin.packed += fraction | 1ull << kFractionSumBits;
    bin.squares += fraction * fraction;
  }

  Bin bins_[2][kBins] = {};
};

template <>
class ExponentBins<uint64_t> {
 public:
  static constexpr int kMostValues = 1 << 17;

  void Add(const uint64_t* words, int n) {
    for (int i = 0; i < n; ++i) {
      const uint64_t fraction = words[i] & kFractionMask<uint64_t>;
      Bin& bin = bins_[words[i] >> 52];
      ++bin.count;
      bin.fractions += fraction;
      bin.squares += static_cast<Uint128>(fraction) * fraction;
    }
  }

  template <typename F>
  void Drain(F f) {
    for (size_t i = 0; i < kBins; ++i) {
      if (bins_[i].count == 0) continue;
      f(i, bins_[i].count, bins_[i].fractions, bins_[i].squares);
      bins_[i] = Bin{};
    }
  }

 private:
  static constexpr size_t kBins = 4096;
  struct Bin {
    uint64_t count;
    Uint128 fractions;
    Uint128 squares;
  };
  Bin bins_[kBins] = {};
};

// Adds `count` values of one bin, whose fractions f sum to `fractions` and f^2 to `squares`:
// normal values are (2^M + f) 2^e, so both sums follow.
template <typename W>
inline void AddBin(size_t bin, uint64_t count, Uint128 fractions, Uint128 squares,
                   TensorTotals* totals) {
  constexpr int kM = WordFormat<W>::kFractionBits;
  const int field = static_cast<int>(bin) % WordFormat<W>::kFields;
  const bool negative = bin >= static_cast<size_t>(WordFormat<W>::kFields);
  Uint128 sum = fractions;
  if (field > 0) {
    sum += Uint128{count} << kM;
    squares += (Uint128{count} << (2 * kM)) + (fractions << (kM + 1));
    totals->exponents[static_cast<size_t>(field - 1 + kM)] += count;
  }
  const int unit = (field > 0 ? field : 1) - WordFormat<W>::kBias - kM;
  (negative ? totals->negative : totals->positive).Add(sum, unit);
  totals->squares.Add(squares, 2 * unit);
}

// Measures chunks one after the other. Not thread-safe; one a thread.
template <typename W>
class WordMeasure {
 public:
  explicit WordMeasure(TensorTotals* totals)
      : totals_(totals),
        bins_(std::make_unique<ExponentBins<W>>()),
        least_normal_(
            internal::MagnitudeBits<W>(PowerOfTwo(FormatOf(totals->dtype).min_exponent))) {
    for (size_t i = 0; i < kFormatFits; ++i) {
      if (kFormatFitTargets[i].block == 0) bounds_[i] = BoundsOf<W>(kFormatFitTargets[i].format);
    }
  }

  // `words`: `n` of them, a multiple of 128 and at most kChunk, the last `padding` of them zeros
  // that are no elements. Non-finite values are replaced by zeros; words is not const for that.
  void Measure(W* words, int n, int padding) {
    ReadGroups(words, n);
    int absent = padding;
    W most = *std::max_element(most_, most_ + n / kGroup);
    if (most >= kInfinityBits<W>) {
      absent += SetAsideNonFinite(words, n);
      ReadGroups(words, n);
      most = *std::max_element(most_, most_ + n / kGroup);
    }
    Extremes(words, n, absent);
    bins_->Add(words, n);
    const W least = *std::min_element(least_, least_ + n / kGroup);
    if (least < least_normal_ - 1) CountSubnormals(words, n);
    if (least < kFractionMask<W>) SubnormalExponents(words, n);
    Fits(words, n, least, most);
    for (int g = 0; g < n / kGroup; ++g)
      ScaledFits(words + g * kGroup, kGroup, 0, least_[g], most_[g]);
    for (int g = 0; g < n / kGroup; g += 4) {
      ScaledFits(words + g * kGroup, 4 * kGroup, 1, *std::min_element(least_ + g, least_ + g + 4),
                 *std::max_element(most_ + g, most_ + g + 4));
    }
    values_ += n;
    if (values_ + kChunk > ExponentBins<W>::kMostValues) Drain();
  }

  void Drain() {
    bins_->Drain([&](size_t bin, uint64_t count, Uint128 fractions, Uint128 squares) {
      AddBin<W>(bin, count, fractions, squares, totals_);
    });
    values_ = 0;
  }

 private:
  // most_: the largest magnitude of each group; least_: the smallest but zero, less 1 (all ones
  // when there is none), so that zeros wrap around and drop out.
  void ReadGroups(const W* words, int n) {
    for (int g = 0; g < n / kGroup; ++g) {
      W most = 0;
      W least = static_cast<W>(~W{0});
      for (int i = 0; i < kGroup; ++i) {
        const W m = words[g * kGroup + i] & kMagnitudeMask<W>;
        const W less = m - 1;
        most = most > m ? most : m;
        least = least < less ? least : less;
      }
      most_[g] = most;
      least_[g] = least;
    }
  }

  __attribute__((noinline)) int SetAsideNonFinite(W* words, int n) {
    int found = 0;
    for (int i = 0; i < n; ++i) {
      const W m = words[i] & kMagnitudeMask<W>;
      if (m < kInfinityBits<W>) continue;
      const bool negative = words[i] != m;
      ++(m > kInfinityBits<W> ? totals_->nan : (negative ? totals_->neg_inf : totals_->pos_inf));
      words[i] = 0;
      ++found;
    }
    return found;
  }

  // Zeros, minimum and maximum, of n words of which `absent` are zeros that are no finite elements.
  void Extremes(const W* words, int n, int absent) {
    using Signed = std::make_signed_t<W>;
    // Signed integers in the order of the values: the magnitudes of negative ones are flipped.
    Signed low = std::numeric_limits<Signed>::max();
    Signed high = std::numeric_limits<Signed>::min();
    W zeros = 0;
    for (int i = 0; i < n; ++i) {
      const auto word = static_cast<Signed>(words[i]);
      const auto flip = static_cast<Signed>((word >> (sizeof(W) * 8 - 1)) &
                                            static_cast<Signed>(kMagnitudeMask<W>));
      const Signed key = word ^ flip;
      low = low < key ? low : key;
      high = high > key ? high : key;
      zeros += (words[i] & kMagnitudeMask<W>) == 0 ? 1 : 0;
    }
    totals_->zero += static_cast<uint64_t>(zeros) - static_cast<uint64_t>(absent);
    if (absent == n) return;
    if (static_cast<int>(zeros) == absent && absent > 0) {  // the zeros seen are no elements
      NonZeroExtremes(words, n);
      return;
    }
    NoteExtreme(low);
    NoteExtreme(high);
  }

  template <typename Signed>
  void NoteExtreme(Signed key) {
    const auto flip =
        static_cast<Signed>((key >> (sizeof(W) * 8 - 1)) & static_cast<Signed>(kMagnitudeMask<W>));
    Note(static_cast<W>(key ^ flip));
  }

  void Note(W word) {
    const double value = __builtin_bit_cast(typename WordFormat<W>::Float, word);
    totals_->min = std::min(totals_->min, value);
    totals_->max = std::max(totals_->max, value);
  }

  __attribute__((noinline)) void NonZeroExtremes(const W* words, int n) {
    for (int i = 0; i < n; ++i) {
      if ((words[i] & kMagnitudeMask<W>) != 0) Note(words[i]);
    }
  }

  // How many of the non-zero magnitudes are below `bound`.
  static uint64_t CountBelow(const W* words, int n, W bound) {
    W found = 0;
    for (int i = 0; i < n; ++i) {
      found += static_cast<W>((words[i] & kMagnitudeMask<W>)-1) < static_cast<W>(bound - 1) ? 1 : 0;
    }
    return found;
  }

  static uint64_t CountFrom(const W* words, int n, W bound) {
    W found = 0;
    for (int i = 0; i < n; ++i) found += (words[i] & kMagnitudeMask<W>) >= bound ? 1 : 0;
    return found;
  }

  __attribute__((noinline)) void CountSubnormals(const W* words, int n) {
    totals_->subnormal += CountBelow(words, n, least_normal_);
  }

  __attribute__((noinline)) void SubnormalExponents(const W* words, int n) {
    for (int i = 0; i < n; ++i) {
      const W m = words[i] & kMagnitudeMask<W>;
      if (m == 0 || m >> WordFormat<W>::kFractionBits != 0) continue;
      ++totals_->exponents[static_cast<size_t>(63 - __builtin_clzll(m))];
    }
  }

  void Fits(const W* words, int n, W least, W most) {
    for (size_t i = 0; i < kFormatFits; ++i) {
      if (kFormatFitTargets[i].block != 0) continue;
      const FitBounds<W>& bounds = bounds_[i];
      FormatFitCounts& fit = totals_->fits[i];
      if (least < bounds.normal_from - 1) CountSmall(words, n, bounds, &fit);
      if (most >= bounds.saturated_from)
        fit.saturated += CountFrom(words, n, bounds.saturated_from);
    }
  }

  static void CountSmall(const W* words, int n, const FitBounds<W>& bounds, FormatFitCounts* fit) {
    const uint64_t flushed = CountBelow(words, n, bounds.subnormal_from);
    fit->flushed += flushed;
    fit->subnormal += CountBelow(words, n, bounds.normal_from) - flushed;
  }

  // Both formats of one scaled block; `size`: 0 for blocks of 32, 1 of 128. kFormatFitTargets keeps
  // e4m3 at 4 and 5, e5m2 at 6 and 7.
  void ScaledFits(const W* words, int n, size_t size, W least, W most) {
    if (most == 0) return;
    if (most >> WordFormat<W>::kFractionBits < kLeastScalableField) {
      TinyFits(words, n, size);
      return;
    }
    const FitBounds<W> e4m3 = ScaledBounds<W>(DType::kE4M3, most);
    if (least >= e4m3.normal_from - 1) return;  // and so above e5m2's, which are lower
    CountSmall(words, n, e4m3, &totals_->fits[4 + size]);
    CountSmall(words, n, ScaledBounds<W>(DType::kE5M2, most), &totals_->fits[6 + size]);
  }

  // Blocks so small that the bounds leave the word's format: measured as f64, scaled up by 2^200.
  __attribute__((noinline)) void TinyFits(const W* words, int n, size_t size) {
    uint64_t scaled[4 * kGroup];
    uint64_t most = 0;
    for (int i = 0; i < n; ++i) {
      const double value = __builtin_bit_cast(typename WordFormat<W>::Float,
                                              static_cast<W>(words[i] & kMagnitudeMask<W>));
      scaled[i] = __builtin_bit_cast(uint64_t, value * PowerOfTwo(200));
      most = std::max(most, scaled[i]);
    }
    for (const size_t fit : {4 + size, 6 + size}) {
      const DType format = kFormatFitTargets[fit].format;
      WordMeasure<uint64_t>::CountSmall(scaled, n, ScaledBounds<uint64_t>(format, most),
                                        &totals_->fits[fit]);
    }
  }

  template <typename>
  friend class WordMeasure;

  TensorTotals* totals_;
  std::unique_ptr<ExponentBins<W>> bins_;
  W least_normal_;  // of the tensor's dtype
  FitBounds<W> bounds_[kFormatFits] = {};
  W most_[kGroups];
  W least_[kGroups];
  int values_ = 0;
};

}  // namespace plumbline
