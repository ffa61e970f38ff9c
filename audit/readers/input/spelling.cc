#include "audit/readers/input/spelling.h"

#include <algorithm>

#include "base/near_word.h"

namespace plumbline::audit {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool SameLetter(char a, char b) { return Lower(a) == Lower(b); }

// Keys that recorders write for their own use, and that differ by one or two letters from a known
// name.
constexpr std::string_view kOrdinary[] = {"model", "tool", "node", "seed", "date", "time", "name"};

size_t Allowed(std::string_view known) { return known.size() >= 6 ? 2 : known.size() >= 4 ? 1 : 0; }

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b, size_t most) {
  const size_t difference = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (difference > most) return most + 1;
  return std::min(plumbline::EditDistance(a, b, SameLetter), most + 1);
}

std::optional<std::string_view> MeantName(std::string_view name,
                                          std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return std::nullopt;
  if (std::find(std::begin(kOrdinary), std::end(kOrdinary), name) != std::end(kOrdinary)) {
    return std::nullopt;
  }
  std::optional<std::string_view> best;
  size_t least = 3;
  for (const std::string_view candidate : known) {
    const size_t distance = EditDistance(name, candidate, 2);
    if (distance > Allowed(candidate) || distance >= least) continue;
    best = candidate;
    least = distance;
  }
  return best;
}

}  // namespace plumbline::audit
