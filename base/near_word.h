// Finds the known word that is closest to a misspelt one, for "did you mean".
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline {

// Returns the number of insertions, deletions and replacements of one byte, and swaps of two
// neighbours. |a| * |b| steps.
template <typename Same = std::equal_to<char>>
size_t EditDistance(std::string_view a, std::string_view b, Same same = {}) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Returns true if the distance is at most a third of the longer word: a more distant word is a
// different word, and a hint at it misleads.
inline bool IsNear(size_t distance, std::string_view a, std::string_view b) {
  return 3 * distance <= std::max(a.size(), b.size());
}

// Returns the nearest word in `known`, any range of texts; empty if none is near.
template <typename Words>
std::string NearestWord(std::string_view word, const Words& known) {
  std::string best;
  size_t least = std::string_view::npos;
  for (const std::string_view candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (!IsNear(distance, word, candidate) || distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

// Returns `; did you mean "grpc"?`; empty if none is near.
template <typename Words>
std::string DidYouMean(std::string_view word, const Words& known) {
  const std::string nearest = NearestWord(word, known);
  return nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
}

}  // namespace plumbline
