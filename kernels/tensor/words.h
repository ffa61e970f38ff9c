// Measures floating elements, chunk by chunk, as the words of their bits, and adds them to totals.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/tensor/loops.h"
#include "kernels/tensor/totals.h"

namespace plumbline {

// Sums of values by sign and exponent field: their number, the sum of their fractions and that of
// the fractions' squares. All exact; used for values that vectors cannot add.
template <typename W>
class ExponentBins {
 public:
  // The largest number of values: fractions of 52 bits square to 104.
  static constexpr int64_t kMostValues = int64_t{1} << 22;

  // `least` and `most`: bounds of the exponent fields of the words' values.
  void Add(const W* words, int n, int least, int most) {
    least_ = std::min(least_, least);
    most_ = std::max(most_, most);
    for (int i = 0; i < n; ++i) {
      const uint64_t fraction = words[i] & kFractionMask<W>;
      Bin& bin = bins_[words[i] >> WordFormat<W>::kFractionBits];
      ++bin.count;
      bin.fractions += fraction;
      bin.squares += static_cast<Uint128>(fraction) * fraction;
    }
    values_ += n;
  }

  int64_t values() const { return values_; }

  // A normal value is (2^M + f) 2^e, M the fraction's bits: both sums follow.
  void Drain(TensorTotals* totals) {
    constexpr int kM = WordFormat<W>::kFractionBits;
    constexpr int kFields = WordFormat<W>::kFields;
    for (int i = 2 * least_; i < 2 * most_ + 2; ++i) {
      const int field = i / 2;
      const bool negative = i % 2 != 0;
      Bin& bin = bins_[negative ? field + kFields : field];
      if (bin.count == 0) continue;
      const int unit = std::max(field, 1) - WordFormat<W>::kBias - kM;
      Uint128 sum = bin.fractions;
      if (field > 0) {
        sum += static_cast<Uint128>(bin.count) << kM;
        totals->squares.Add(static_cast<Uint128>(bin.count), 2 * (unit + kM));
        totals->squares.Add(static_cast<Uint128>(bin.fractions), 2 * unit + kM + 1);
      }
      totals->squares.Add(bin.squares, 2 * unit);
      totals->magnitudes.Add(sum, unit);
      totals->sum.Add(sum, unit, negative);
      bin = Bin{};
    }
    values_ = 0;
    least_ = WordFormat<W>::kFields;
    most_ = -1;
  }

 private:
  struct Bin {
    Uint128 fractions;
    Uint128 squares;
    uint64_t count;
  };
  Bin bins_[2 * WordFormat<W>::kFields] = {};  // those of zeros are ignored
  int least_ = WordFormat<W>::kFields;
  int most_ = -1;
  int64_t values_ = 0;
};

// Measures chunks one after another; call Finish() at the end. Not thread-safe; one per thread.
template <typename W, typename Loops>
class WordMeasure {
 public:
  explicit WordMeasure(TensorTotals* totals)
      : totals_(totals),
        least_normal_(BitsNotBelow<W>(PowerOfTwo(FormatOf(totals->dtype).min_exponent))) {
    for (size_t i = 0; i < kFormatFits; ++i) {
      if (kFormatFitTargets[i].block == 0) bounds_[i] = BoundsOf<W>(kFormatFitTargets[i].format);
    }
  }

  // Measures `words`: `n` of them, a multiple of 128 and at most kChunk, the last `padding` of them
  // zeros that are no elements. Their exponents and fits go to `looks`, if these are not null.
  // `sums`: add them exactly. Returns the largest magnitude; a NaN's is above infinity's.
  W Measure(const W* words, int n, int padding, std::array<TensorLook*, 2> looks,
            bool sums = true) {
    int absent = padding;  // zeros that are no finite elements
    Loops::Scan(words, n, &scan_);
    const W most = scan_.most_of_all;
    if (scan_.most_of_all >= kInfinityBits<W>) {
      absent += SetAsideNonFinite(words, n, totals_);
      words = finite_;
      Loops::Scan(words, n, &scan_);
    }
    // Counting exponents also finds the zeros.
    uint64_t zeros = 0;
    bool counted = false;
    for (TensorLook* look : looks) {
      if (look == nullptr) continue;
      zeros = Look(words, n, look);
      counted = true;
    }
    if (!counted) zeros = static_cast<uint64_t>(n) - Loops::CountFrom(words, n, W{1});
    zeros -= static_cast<uint64_t>(absent);
    totals_->zero += zeros;
    if (absent < n) Extremes(words, n, zeros);
    if (scan_.least_of_all < least_normal_ - 1) {
      uint64_t ignored = 0;
      Loops::CountBelow(words, n, least_normal_, least_normal_, &totals_->subnormal, &ignored);
    }
    if (sums) Sum(words, n);
    return most;
  }

  // Adds the sums that Measure left out.
  void AddExactly(const W* words, int n) {
    Loops::Scan(words, n, &scan_);
    if (scan_.most_of_all >= kInfinityBits<W>) {
      TensorTotals counted(totals_->dtype);
      SetAsideNonFinite(words, n, &counted);
      words = finite_;
      Loops::Scan(words, n, &scan_);
    }
    Sum(words, n);
  }

  void Finish() {
    AddPending();
    if (bins_ != nullptr) bins_->Drain(totals_);
  }

 private:
  static constexpr int kM = WordFormat<W>::kFractionBits;

  // Returns the number of zeros.
  uint64_t Look(const W* words, int n, TensorLook* look) {
    look_ = look;
    const uint64_t zeros = CountExponents(words, n);
    const int groups = n / kGroup;
    Fits(words, groups);
    if (NoScaledFits()) return zeros;
    Loops::ScanMost(words, n, &scan_);
    ScaledFits(words, scan_.most, scan_.least, groups, 1);
    W most[kGroups / 4] = {};
    W least[kGroups / 4] = {};
    for (int i = 0; i < groups / 4; ++i) {
      const W* m = scan_.most + 4 * i;
      const W* l = scan_.least + 4 * i;
      most[i] = std::max(std::max(m[0], m[1]), std::max(m[2], m[3]));
      least[i] = std::min(std::min(l[0], l[1]), std::min(l[2], l[3]));
    }
    ScaledFits(words, most, least, groups / 4, 4);
    return zeros;
  }

  // Copies the words to finite_, with zeros instead of non-finite values; returns the number of
  // those.
  __attribute__((noinline)) int SetAsideNonFinite(const W* words, int n, TensorTotals* to) {
    int found = 0;
    for (int i = 0; i < n; ++i) {
      finite_[i] = words[i];
      const W m = words[i] & kMagnitudeMask<W>;
      if (m < kInfinityBits<W>) continue;
      const bool negative = words[i] != m;
      ++(m > kInfinityBits<W> ? to->nan : (negative ? to->neg_inf : to->pos_inf));
      finite_[i] = 0;
      ++found;
    }
    return found;
  }

  // Returns the number of zeros, which have no exponent.
  uint64_t CountExponents(const W* words, int n) {
    const W least = scan_.least_of_all;
    auto others = static_cast<uint64_t>(n);
    if (least < kFractionMask<W>) others -= CountSubnormalExponents(words, n);
    const int last = scan_.most_of_all >> kM;
    if (last == 0) return others;
    const int first = std::max(1, static_cast<int>(static_cast<W>(least + 1) >> kM));
    if constexpr (sizeof(W) == 8) {
      for (int i = 0; i < n; ++i) {
        const auto field = static_cast<size_t>((words[i] & kMagnitudeMask<W>) >> kM);
        if (field == 0) continue;
        ++look_->exponents[field - 1 + kM];
        --others;
      }
    } else {
      uint32_t counts[WordFormat<W>::kFields];
      counts[0] = 0;  // other fields have no words
      std::fill(counts + first, counts + last + 1, 0);
      Loops::CountFields(words, n, scan_.least, first, last, counts);
      for (int field = first; field <= last; ++field) {
        look_->exponents[static_cast<size_t>(field - 1 + kM)] += counts[field];
        others -= counts[field];
      }
    }
    return others;
  }

  __attribute__((noinline)) uint64_t CountSubnormalExponents(const W* words, int n) {
    uint64_t found = 0;
    for (int i = 0; i < n; ++i) {
      const W m = words[i] & kMagnitudeMask<W>;
      if (m == 0 || m >> kM != 0) continue;
      ++look_->exponents[static_cast<size_t>(63 - __builtin_clzll(m))];
      ++found;
    }
    return found;
  }

  // Updates extremes with a chunk that has finite elements.
  void Extremes(const W* words, int n, uint64_t zeros) {
    const double most = ValueOf(scan_.most_of_all);
    if (totals_->min <= -most && totals_->max >= most) return;
    Loops::ScanSigns(words, n, &scan_);
    if (scan_.negative != 0) Note(-ValueOf(scan_.negative));
    if (scan_.positive != 0) Note(ValueOf(scan_.positive));
    if (zeros > 0) return Note(0);
    // The extreme that is nearest to zero, if all values have one sign.
    const double nearest = ValueOf(static_cast<W>(scan_.least_of_all + 1));
    if (scan_.negative == 0) Note(nearest);
    if (scan_.positive == 0) Note(-nearest);
  }

  static double ValueOf(W magnitude) {
    if constexpr (sizeof(W) == 8) {
      return __builtin_bit_cast(double, magnitude);
    } else {
      return __builtin_bit_cast(float, static_cast<uint32_t>(magnitude)
                                           << (sizeof(W) == 2 ? 16 : 0));
    }
  }

  void Note(double value) {
    totals_->min = std::min(totals_->min, value);
    totals_->max = std::max(totals_->max, value);
  }

  void Sum(const W* words, int n) {
    if (scan_.most_of_all == 0) return;
    bool added[kGroups];
    ChunkSums sums;
    const int chosen = Loops::SumGroups(words, n, scan_, added, &sums);
    if (chosen > 0) Keep(sums);
    if (chosen == n / kGroup) return;
    if (bins_ == nullptr) bins_ = std::make_unique<ExponentBins<W>>();
    const int first = static_cast<W>(scan_.least_of_all + 1) >> kM;
    const int last = scan_.most_of_all >> kM;
    for (int g = 0; g < n / kGroup; ++g) {
      if (chosen == 0 || !added[g]) bins_->Add(words + g * kGroup, kGroup, first, last);
    }
    if (bins_->values() + kChunk > ExponentBins<W>::kMostValues) bins_->Drain(totals_);
  }

  // Adds sums of the same unit as integers before they join the totals: a chunk's squares are below
  // 2^96.
  void Keep(const ChunkSums& sums) {
    constexpr int kMostKept = 1 << 20;
    if (kept_ == kMostKept || (kept_ > 0 && pending_.unit != sums.unit)) AddPending();
    if (kept_ == 0) {
      pending_ = sums;
    } else {
      pending_.sum += sums.sum;
      pending_.magnitudes += sums.magnitudes;
      pending_.squares += sums.squares;
    }
    ++kept_;
  }

  void AddPending() {
    if (kept_ == 0) return;
    const ChunkSums& p = pending_;
    totals_->sum.Add(static_cast<Uint128>(p.sum < 0 ? -p.sum : p.sum), p.unit, p.sum < 0);
    totals_->magnitudes.Add(p.magnitudes, p.unit);
    totals_->squares.Add(p.squares, 2 * p.unit);
    kept_ = 0;
  }

  void Fits(const W* words, int groups) {
    for (size_t i = 0; i < kFormatFits; ++i) {
      if (kFormatFitTargets[i].block != 0) continue;
      const FitBounds<W>& bounds = bounds_[i];
      FormatFitCounts& fit = look_->fits[i];
      if (scan_.least_of_all < bounds.normal_from - 1)
        CountSmallGroups(words, groups, bounds, &fit);
      if (scan_.most_of_all >= bounds.saturated_from) {
        fit.saturated += Loops::CountFrom(words, groups * kGroup, bounds.saturated_from);
      }
    }
  }

  // Often only a few groups can have small values.
  void CountSmallGroups(const W* words, int groups, const FitBounds<W>& bounds,
                        FormatFitCounts* fit) {
    const uint64_t some =
        Loops::GroupsBelow(scan_.least, groups, static_cast<W>(bounds.normal_from - 1));
    uint64_t flushed = 0;
    uint64_t small = 0;
    if (some == ~uint64_t{0}) {
      Loops::CountBelow(words, kChunk, bounds.subnormal_from, bounds.normal_from, &flushed, &small);
    } else {
      Loops::CountBelowIn(words, some, bounds.subnormal_from, bounds.normal_from, &flushed, &small);
    }
    fit->flushed += flushed;
    fit->subnormal += small - flushed;
  }

  static void CountSmall(const W* words, int n, const FitBounds<W>& bounds, FormatFitCounts* fit) {
    uint64_t flushed = 0;
    uint64_t small = 0;
    Loops::CountBelow(words, n, bounds.subnormal_from, bounds.normal_from, &flushed, &small);
    fit->flushed += flushed;
    fit->subnormal += small - flushed;
  }

  // Returns true if no scaled block has a small value. Bounds grow with a block's largest
  // magnitude, so none is above that of the chunk's.
  bool NoScaledFits() const {
    const W least = static_cast<W>(scan_.least_of_all + 1);
    return least >> kM >= kLeastScalableField &&
           least >= ScaledNormalFrom<W>(true, scan_.most_of_all);
  }

  // Counts both formats of the scaled blocks of `groups` groups each. kFormatFitTargets has e4m3 at
  // 4 (blocks of 32) and 5 (of 128), e5m2 at 6 and 7.
  void ScaledFits(const W* words, const W* most, const W* least, int blocks, int groups) {
    W flags[kGroups];
    if (!Loops::FlagSmall(most, least, blocks, flags)) return;
    const int n = groups * kGroup;
    const size_t size = groups == 1 ? 0 : 1;
    for (int i = 0; i < blocks; ++i) {
      if (flags[i] == 0) continue;
      const W* block = words + i * n;
      if (most[i] >> kM < kLeastScalableField) {
        TinyFits(block, n, size);
        continue;
      }
      CountSmall(block, n, ScaledBounds<W>(DType::kE4M3, most[i]), &look_->fits[4 + size]);
      const FitBounds<W> e5m2 = ScaledBounds<W>(DType::kE5M2, most[i]);
      if (least[i] < e5m2.normal_from - 1) CountSmall(block, n, e5m2, &look_->fits[6 + size]);
    }
  }

  // Handles blocks whose values are so small that the bounds are outside the word's format: scales
  // the values up and measures them as f64.
  __attribute__((noinline)) void TinyFits(const W* words, int n, size_t size) {
    uint64_t scaled[4 * kGroup];
    uint64_t most = 0;
    for (int i = 0; i < n; ++i) {
      scaled[i] = ScaledUp(static_cast<W>(words[i] & kMagnitudeMask<W>));
      most = std::max(most, scaled[i]);
    }
    for (const size_t fit : {4 + size, 6 + size}) {
      WordMeasure<uint64_t, PortableLoops>::CountSmall(
          scaled, n, ScaledBounds<uint64_t>(kFormatFitTargets[fit].format, most),
          &look_->fits[fit]);
    }
  }

  template <typename, typename>
  friend class WordMeasure;

  TensorTotals* totals_;
  TensorLook* look_ = nullptr;             // of the chunk at hand
  std::unique_ptr<ExponentBins<W>> bins_;  // from the first value that needs them
  ChunkSums pending_{};                    // of kept_ chunks
  int kept_ = 0;
  W least_normal_;  // of the tensor's dtype
  FitBounds<W> bounds_[kFormatFits] = {};
  ChunkScan<W> scan_{};
  W finite_[kChunk];
};

}  // namespace plumbline
