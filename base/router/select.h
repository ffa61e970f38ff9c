// Selects the best few values of a row, in order; ties go to the earlier one. Host only.
#pragma once

#include <cstdint>

#include "base/router/rule.h"

// Marks a loop over independent lanes. A file that is compiled with -fopenmp-simd defines it, and
// the loops become vectors; the results are the same.
#ifndef PLUMB_SIMD
#define PLUMB_SIMD
#endif

namespace plumbline::internal {

struct Ranked {
  double key;
  int32_t index;
};

// Keeps the `limit` best of the values that are offered in ascending index order: among equals the
// earlier one stays ahead. Returns the new count.
inline int Offer(Ranked* best, int count, int limit, double key, int32_t index) {
  if (count == limit && !(key > best[count - 1].key)) return count;
  int at = count < limit ? count : limit - 1;
  for (; at > 0 && key > best[at - 1].key; --at) best[at] = best[at - 1];
  best[at] = {key, index};
  return count < limit ? count + 1 : limit;
}

// Places n <= kMostPaired candidates by comparing all pairs: no branch depends on the values.
// Equals are ordered by index. `best` has space for limit + 1.
inline constexpr int kMostPaired = 12;
inline void RankByPairs(const double* key, const int32_t* index, int n, int limit, Ranked* best) {
  int32_t place[kMostPaired];
  for (int b = 0; b < n; ++b) {
    int32_t ahead = b;
    for (int a = 0; a < b; ++a) {
      const int32_t overtakes = key[b] > key[a] ? 1 : 0;
      place[a] += overtakes;
      ahead -= overtakes;
    }
    place[b] = ahead;
  }
  for (int a = 0; a < n; ++a) best[place[a] < limit ? place[a] : limit] = {key[a], index[a]};
}

// Does the same for n <= kMostCounted, by counting the candidates that are ahead of each. `key` has
// space for kCountLanes more.
inline constexpr int kMostCounted = 64;
inline constexpr int kCountLanes = 4;
inline void RankByCounting(double* key, const int32_t* index, int n, int limit, Ranked* best) {
  for (int l = 0; l < kCountLanes; ++l) key[n + l] = -__builtin_inf();
  uint64_t placed = 0;  // bit p: place p is taken
  for (int a = 0; a < n; ++a) {
    const double k = key[a];
    int64_t lane[kCountLanes] = {};
    for (int b = 0; b < n; b += kCountLanes) {
      for (int l = 0; l < kCountLanes; ++l) lane[l] += key[b + l] > k ? 1 : 0;
    }
    int64_t place = lane[0] + lane[1] + lane[2] + lane[3];
    while ((placed >> place & 1) != 0) ++place;  // by equals
    placed |= uint64_t{1} << place;
    best[place < limit ? place : limit] = {k, index[a]};
  }
}

// Lists the places of the keys that are at least `floor`, ascending, at most kMaxExperts. Returns
// the number of places.
inline int Near(const double* key, int n, double floor, int32_t* places) {
  int near = 0;
  for (int base = 0; base < n; base += 64) {
    const int width = n - base < 64 ? n - base : 64;
    uint64_t lane[kCountLanes] = {};
    uint64_t bit[kCountLanes] = {1, 2, 4, 8};
    int i = 0;
    for (; i + kCountLanes <= width; i += kCountLanes) {
      PLUMB_SIMD
      for (int l = 0; l < kCountLanes; ++l) {
        const uint64_t here = bit[l];
        lane[l] |= here & -static_cast<uint64_t>(key[base + i + l] >= floor);
        bit[l] = here << kCountLanes;
      }
    }
    uint64_t word = lane[0] | lane[1] | lane[2] | lane[3];
    for (; i < width; ++i) word |= uint64_t{key[base + i] >= floor} << i;
    for (; word != 0; word &= word - 1) places[near++] = base + __builtin_ctzll(word);
  }
  return near;
}

// Returns a value that at least `limit` <= kMostFloored of n >= 8 keys reach, and few others: the
// limit-th largest of the maxima over kMostFloored groups of them.
inline constexpr int kMostFloored = 4;
inline double GroupFloor(const double* key, int n, int limit) {
  constexpr int kLanes = 2 * kMostFloored;
  double lane[kLanes];
  PLUMB_SIMD
  for (int l = 0; l < kLanes; ++l) lane[l] = key[l];
  for (int i = kLanes; i + kLanes <= n; i += kLanes) {  // the remaining keys could only add to them
    PLUMB_SIMD
    for (int l = 0; l < kLanes; ++l) lane[l] = key[i + l] > lane[l] ? key[i + l] : lane[l];
  }
  double group[kMostFloored], reached[kMostFloored];
  int64_t ahead[kMostFloored] = {};
  PLUMB_SIMD
  for (int l = 0; l < kMostFloored; ++l) {
    group[l] = lane[l] > lane[l + kMostFloored] ? lane[l] : lane[l + kMostFloored];
  }
  for (double other : group) {
    PLUMB_SIMD
    for (int l = 0; l < kMostFloored; ++l) ahead[l] += other > group[l] ? 1 : 0;
  }
  PLUMB_SIMD
  for (int l = 0; l < kMostFloored; ++l) reached[l] = ahead[l] < limit ? group[l] : __builtin_inf();
  double least = reached[0];
  for (double r : reached) least = r < least ? r : least;
  return least;
}

// Selects the `limit` best of n keys. index[] ascends; null means 0 .. n-1. If `limit` is too large
// for GroupFloor, `hint` guesses a value that a few more keys reach; a wrong guess costs time,
// never the result, and is updated for the next row. `best` has space for limit + 1.
inline void SelectBest(const double* key, const int32_t* index, int n, int limit, double* hint,
                       Ranked* best) {
  int32_t near_index[kMaxExperts];
  double floor = *hint;
  if (n <= kMostPaired) {
    floor = -__builtin_inf();
  } else if (limit <= kMostFloored) {
    floor = GroupFloor(key, n, limit);
  }
  const int near = Near(key, n, floor, near_index);
  if (near >= limit && near <= kMostCounted) {  // beyond, a sorted list costs less
    double near_key[kMostCounted + kCountLanes];
    for (int c = 0; c < near; ++c) {
      const int32_t place = near_index[c];
      near_key[c] = key[place];
      if (index != nullptr) near_index[c] = index[place];
    }
    if (near <= kMostPaired) {
      RankByPairs(near_key, near_index, near, limit, best);
    } else {
      RankByCounting(near_key, near_index, near, limit, best);
    }
  } else {
    int count = 0;
    for (int i = 0; i < n; ++i) {
      count = Offer(best, count, limit, key[i], index != nullptr ? index[i] : i);
    }
  }
  const double last = best[limit - 1].key;
  const double wanted = last - 0.3 * (best[0].key - last);
  *hint = IsFiniteValue(wanted) ? 0.75 * *hint + 0.25 * wanted : 0;
}

}  // namespace plumbline::internal
