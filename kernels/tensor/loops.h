// The inner loops of tensor statistics, portable form; tensor/loops_avx2.h does the same with
// vectors. Both are exact, so their results are equal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/core/wide_sum.h"
#include "kernels/core/widen.h"
#include "kernels/tensor/digest.h"
#include "kernels/tensor/fit.h"
#include "kernels/tensor/lane_vector.h"
#include "kernels/tensor/sum_order.h"

namespace plumbline {

// Elements read at a time: a multiple of the scaled blocks' and, in bytes, of the digest's.
inline constexpr int kChunk = 2048;
inline constexpr int kGroup = 32;  // elements of the shortest scaled block
inline constexpr int kGroups = kChunk / kGroup;

// Figures of passes over a chunk, each computed on request. Magnitudes are words without their
// sign.
template <typename W>
struct ChunkScan {
  // Set by Scan:
  W least[kGroups];  // smallest non-zero magnitude minus 1 (zeros wrap around); all ones if there
                     // is none
  W least_of_all;
  W most_of_all;  // largest magnitude
  // Set by ScanMost:
  W most[kGroups];  // largest magnitude of each group
  // Set by ScanSigns:
  W positive;  // the largest word that has no sign; 0 if there is none
  W negative;  // the largest magnitude with a sign; 0 if there is none
};

// The exact sum of values, of magnitudes and of squares of some words, in units of 2^unit and 2^(2
// unit).
struct ChunkSums {
  Int128 sum;
  Uint128 magnitudes;
  Uint128 squares;
  int unit;
};

// The sums of a tile's 128 threads, in the terms of tensor/sum_order.h.
struct TileLanes {
  alignas(32) double sum[kSumThreads];
  alignas(32) double magnitudes[kSumThreads];
  alignas(32) double squares[kSumThreads];
};

namespace internal {

// The loop of FlagSmall, compiled for each instruction set.
template <typename W>
__attribute__((always_inline)) inline bool FlagSmall(const W* most, const W* least, int n,
                                                     W* flags) {
  constexpr int kM = WordFormat<W>::kFractionBits;
  W any = 0;
  for (int i = 0; i < n; ++i) {
    const bool tiny = most[i] < static_cast<W>(W{kLeastScalableField} << kM);
    const bool small = least[i] < static_cast<W>(ScaledNormalFrom<W>(true, most[i]) - 1);
    const W flag = most[i] != 0 && (tiny || small) ? 1 : 0;
    flags[i] = flag;
    any |= flag;
  }
  return any != 0;
}

template <typename Code, typename F>
__attribute__((always_inline)) inline void WidenEach(const std::byte* data, int n, uint32_t* words,
                                                     F widen) {
  for (int i = 0; i < n; ++i) {
    Code code;
    __builtin_memcpy(&code, data + static_cast<size_t>(i) * sizeof(Code), sizeof(Code));
    words[i] = widen(code);
  }
}

__attribute__((always_inline)) inline void Widen(const std::byte* data, DType t, int n,
                                                 uint32_t* words) {
  if (t == DType::kF16) return WidenEach<uint16_t>(data, n, words, WidenF16);
  if (t == DType::kE4M3) return WidenEach<uint8_t>(data, n, words, WidenE4M3);
  WidenEach<uint8_t>(data, n, words, WidenE5M2);
}

}  // namespace internal

struct PortableLoops {
  // Returns the f32 bits of n codes of f16, e4m3 or e5m2.
  static void Widen(const std::byte* data, DType t, int n, uint32_t* words) {
    internal::Widen(data, t, n, words);
  }

  template <typename W>
  static void Scan(const W* words, int n, ChunkScan<W>* scan) {
    scan->most_of_all = 0;
    scan->least_of_all = std::numeric_limits<W>::max();
    for (int g = 0; g < n / kGroup; ++g) {
      W most = 0;
      W least = std::numeric_limits<W>::max();
      for (int i = 0; i < kGroup; ++i) {
        const W m = words[g * kGroup + i] & kMagnitudeMask<W>;
        most = std::max(most, m);
        least = std::min(least, static_cast<W>(m - 1));
      }
      scan->least[g] = least;
      scan->most_of_all = std::max(scan->most_of_all, most);
      scan->least_of_all = std::min(scan->least_of_all, least);
    }
  }

  template <typename W>
  static void ScanMost(const W* words, int n, ChunkScan<W>* scan) {
    for (int g = 0; g < n / kGroup; ++g) {
      W most = 0;
      for (int i = 0; i < kGroup; ++i)
        most = std::max(most, static_cast<W>(words[g * kGroup + i] & kMagnitudeMask<W>));
      scan->most[g] = most;
    }
  }

  template <typename W>
  static void ScanSigns(const W* words, int n, ChunkScan<W>* scan) {
    W positive = 0;
    W negative = 0;
    for (int i = 0; i < n; ++i) {
      const W m = words[i] & kMagnitudeMask<W>;
      const bool is_negative = words[i] != m;
      positive = std::max(positive, is_negative ? W{0} : m);
      negative = std::max(negative, is_negative ? m : W{0});
    }
    scan->positive = positive;
    scan->negative = negative;
  }

  // Counts non-zero magnitudes below each of two bounds.
  template <typename W>
  static void CountBelow(const W* words, int n, W low, W high, uint64_t* below_low,
                         uint64_t* below_high) {
    uint64_t first = 0;
    uint64_t second = 0;
    for (int i = 0; i < n; ++i) {
      const W less = static_cast<W>((words[i] & kMagnitudeMask<W>)-1);
      first += less < static_cast<W>(low - 1) ? 1 : 0;
      second += less < static_cast<W>(high - 1) ? 1 : 0;
    }
    *below_low += first;
    *below_high += second;
  }

  // Does the same for the groups whose bits are set.
  template <typename W>
  static void CountBelowIn(const W* words, uint64_t groups, W low, W high, uint64_t* below_low,
                           uint64_t* below_high) {
    for (; groups != 0; groups &= groups - 1) {
      CountBelow(words + __builtin_ctzll(groups) * kGroup, kGroup, low, high, below_low,
                 below_high);
    }
  }

  template <typename W>
  static uint64_t CountFrom(const W* words, int n, W bound) {
    uint64_t found = 0;
    for (int i = 0; i < n; ++i) found += (words[i] & kMagnitudeMask<W>) >= bound ? 1 : 0;
    return found;
  }

  // Adds to counts[field] the words with that exponent field, for first <= field <= last, the
  // largest of all; other counts may become invalid. `least` as in ChunkScan.
  template <typename W>
  static void CountFields(const W* words, int n, const W*, int, int, uint32_t* counts) {
    for (int i = 0; i < n; ++i) {
      ++counts[(words[i] & kMagnitudeMask<W>) >> WordFormat<W>::kFractionBits];
    }
  }

  // Adds up the groups that fit into the width of the accumulators and returns their number, with
  // added[g] for each if they are some but not all. `sums` is set unless there are none.
  template <typename W>
  static int SumGroups(const W*, int, const ChunkScan<W>&, bool*, ChunkSums*) {
    return 0;
  }

  // Adds a round of four blocks, of any alignment, to the first `threads` lanes, a multiple of 8.
  template <typename Values>
  static void AddRound(Values, const std::byte* const* blocks, int threads, TileLanes* lanes) {
    for (int t = 0; t < threads; ++t) {
      LaneVector<typename Values::Raw> v[kSumBlocks];
      for (int b = 0; b < kSumBlocks; ++b)
        __builtin_memcpy(&v[b], blocks[b] + t * kSumVectorBytes, kSumVectorBytes);
      const OrderedSums round = RoundSums<Values>(v);
      lanes->sum[t] += round.sum;
      lanes->magnitudes[t] += round.magnitudes;
      lanes->squares[t] += round.squares;
    }
  }

  // Returns bit g if least[g] < bound, for `groups` <= 64 groups.
  template <typename W>
  static uint64_t GroupsBelow(const W* least, int groups, W bound) {
    uint64_t found = 0;
    for (int g = 0; g < groups; ++g) found |= uint64_t{least[g] < bound ? 1u : 0u} << g;
    return found;
  }

  // Sets flags[b] != 0 for scaled blocks (their largest and least magnitudes given as in ChunkScan)
  // in which a value may be small for e4m3, and so for e5m2, whose bounds are lower; returns true
  // if any is.
  template <typename W>
  static bool FlagSmall(const W* most, const W* least, int n, W* flags) {
    return internal::FlagSmall(most, least, n, flags);
  }

  // Returns the sum over `words` 8-byte words of one digest block.
  static Digest DigestWords(const std::byte* data, size_t words, DigestKey key) {
    Digest sum;
    for (size_t i = 0; i < words; ++i) {
      uint64_t word;
      __builtin_memcpy(&word, data + 8 * i, 8);
      sum.low += DigestWord(word, kDigestTable.low[i] ^ key.low);
      sum.high += DigestWord(word, kDigestTable.high[i] ^ key.high);
    }
    return sum;
  }
};

}  // namespace plumbline
