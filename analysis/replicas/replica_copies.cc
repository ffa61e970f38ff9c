#include "analysis/replicas/replica_copies.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/sample/sample.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

std::string Hex(const char* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (size_t i = size; i > 0; --i) {
    const auto byte = static_cast<unsigned char>(bytes[i - 1]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

int Flipped(const char* a, const char* b, size_t size) {
  int bits = 0;
  for (size_t i = 0; i < size; ++i) bits += std::popcount(static_cast<unsigned char>(a[i] ^ b[i]));
  return bits;
}

bool SamePlaces(const v1::TensorSample& a, const v1::TensorSample& b) {
  return a.values().dtype() == b.values().dtype() &&
         a.values().data().size() == b.values().data().size() &&
         a.has_offsets() == b.has_offsets() && a.first_row() == b.first_row() &&
         a.offsets().dtype() == b.offsets().dtype() && a.offsets().data() == b.offsets().data();
}

}  // namespace

bool Copies::comparable() const {
  return std::all_of(states.begin(), states.end(), [&](const v1::TensorState* s) {
    return s->has_summary() && s->dtype() == states[0]->dtype() &&
           s->summary().count() == states[0]->summary().count() &&
           std::equal(s->shape().begin(), s->shape().end(), states[0]->shape().begin(),
                      states[0]->shape().end()) &&
           (s->summary().digest_low() != 0 || s->summary().digest_high() != 0);
  });
}

bool Copies::equal() const {
  return std::all_of(digests.begin(), digests.end(),
                     [&](const Digest& d) { return d == digests[0]; });
}

bool Copies::varied() const {
  return std::any_of(states.begin(), states.end(), [](const v1::TensorState* s) {
    return s->summary().min() < s->summary().max();
  });
}

bool Copies::alike_in_nan() const {
  return std::all_of(states.begin(), states.end(), [&](const v1::TensorState* s) {
    return s->summary().nan() > 0 && s->summary().nan() == states[0]->summary().nan();
  });
}

std::optional<size_t> Copies::Majority() const {
  std::map<Digest, size_t> votes;
  for (const Digest& d : digests) ++votes[d];
  for (size_t i = 0; i < digests.size(); ++i) {
    if (2 * votes[digests[i]] > digests.size()) return i;
  }
  return std::nullopt;
}

std::vector<Copies> GroupCopies(const SiteStep& step) {
  std::map<std::pair<std::string, uint32_t>, Copies> groups;
  for (const Item& item : step.items) {
    if (!item.evidence->has_tensor()) continue;
    const v1::TensorState& state = item.evidence->tensor();
    Copies& copies = groups[{state.replicas(), item.evidence->call()}];
    copies.replicas = state.replicas();
    copies.call = item.evidence->call();
    // Use one record per rank and call.
    if (!copies.ranks.empty() && copies.ranks.back() == item.source->rank()) continue;
    copies.ranks.push_back(item.source->rank());
    copies.states.push_back(&state);
    copies.digests.push_back({state.summary().digest_low(), state.summary().digest_high()});
  }
  std::vector<Copies> out;
  for (auto& [key, copies] : groups) {
    if (copies.ranks.size() > 1) out.push_back(std::move(copies));
  }
  return out;
}

std::optional<Difference> Compare(const v1::TensorState& a, const v1::TensorState& b) {
  if (!a.has_sample() || !b.has_sample() || !SamePlaces(a.sample(), b.sample()))
    return std::nullopt;
  const auto first = DecodeTensor(a), second = DecodeTensor(b);
  if (!first.ok() || !second.ok()) return std::nullopt;
  const size_t size = DTypeSize(first->dtype);
  const char* from_a = a.sample().values().data().data();
  const char* from_b = b.sample().values().data().data();
  const uint64_t row_start =
      first->offsets.empty() ? first->first_row * static_cast<uint64_t>(first->columns) : 0;
  Difference d;
  d.compared = first->values.size();
  d.whole = d.compared == a.summary().count();
  for (size_t i = 0; i < d.compared; ++i) {
    const char* x = from_a + i * size;
    const char* y = from_b + i * size;
    if (std::isnan(first->values[i]) && std::isnan(second->values[i])) continue;
    const int flipped = Flipped(x, y, size);
    if (first->values[i] != 0) {
      ++d.informative;
      d.agree += flipped == 0 ? 1 : 0;
    }
    const uint64_t element = first->offsets.empty() ? row_start + i : first->offsets[i];
    if (flipped == 0) continue;
    const bool earliest = d.differ == 0 || element < d.element;
    ++d.differ;
    if (!earliest) continue;
    d.element = element;
    d.flipped_bits = flipped;
    d.bits_a = Hex(x, size);
    d.bits_b = Hex(y, size);
    d.value_a = first->values[i];
    d.value_b = second->values[i];
  }
  return d;
}

std::string RankList(const std::set<uint32_t>& ranks) {
  constexpr size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t n = 0;
  for (const uint32_t rank : ranks) {
    if (n == kMost) return absl::StrCat(text, " and ", ranks.size() - kMost, " more");
    absl::StrAppend(&text, n == 0 ? "" : ", ", rank);
    ++n;
  }
  return text;
}

}  // namespace plumbline::analysis
