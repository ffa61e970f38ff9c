// Details and witness of a verdict on a router call, as in the contract.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/picture/picture.h"
#include "analysis/routing/analysis.h"

namespace plumbline::analysis {
namespace {

std::string TokenText(const RoutingCase& c, int32_t token, double score) {
  const auto row = static_cast<size_t>(token);
  return absl::StrFormat("token %d (sequence %d, position %d), score %.6g", token, c.sequence[row],
                         c.position[row], score);
}

void PutToken(google::protobuf::Struct& s, const RoutingCase& c, int32_t token, double score) {
  const auto row = static_cast<size_t>(token);
  Put(s, "row", token);
  Put(s, "sequence", static_cast<double>(c.sequence[row]));
  if (!c.hashed_sequence.empty()) Put(s, "sequence_hash", absl::StrCat(c.hashed_sequence[row]));
  Put(s, "position", static_cast<double>(c.position[row]));
  Put(s, "score", score);
}

// Adds all candidates of the pair's expert in row order: the token, its score, and whether it was
// admitted. `refused` and `admitted` are indices in the arrays.
void PutQueue(google::protobuf::Struct& s, const RoutingCase& c, const RefusalPair& pair,
              KeyKind key) {
  std::vector<const Choice*> candidates;
  std::vector<size_t> always;
  const auto pool_of = [&](int32_t token) { return c.pool[static_cast<size_t>(token)]; };
  for (const Choice& choice : c.choices) {
    if (choice.expert != pair.expert || pool_of(choice.token) != pool_of(pair.refused)) continue;
    if (choice.token == pair.refused || choice.token == pair.admitted)
      always.push_back(candidates.size());
    candidates.push_back(&choice);
  }
  std::vector<double> row, sequence, position, score, kept;
  for (const size_t i : Evenly(candidates.size(), kMostInRow, always)) {
    const Choice& choice = *candidates[i];
    const auto at = static_cast<size_t>(choice.token);
    if (choice.token == pair.refused) Put(s, "refused", static_cast<double>(row.size()));
    if (choice.token == pair.admitted) Put(s, "admitted", static_cast<double>(row.size()));
    row.push_back(choice.token);
    sequence.push_back(static_cast<double>(c.sequence[at]));
    position.push_back(static_cast<double>(c.position[at]));
    score.push_back(KeyValue(c, key, choice.token, choice.expert, choice.rank));
    kept.push_back(choice.kept ? 1 : 0);
  }
  Put(s, "candidates", static_cast<double>(candidates.size()));
  PutNumbers(s, "row", row);
  PutNumbers(s, "sequence", sequence);
  PutNumbers(s, "position", position);
  PutNumbers(s, "score", score);
  PutNumbers(s, "kept", kept);
}

// Adds the share of the choices that each policy gives as recorded: of the queue in time order, and
// of the best replay of each kind. A replay that a sample of the choices refutes has the sample's
// share.
void PutPolicies(google::protobuf::Struct& s, const RoutingAnalysis& a) {
  auto& list = *(*s.mutable_fields())["policies"].mutable_list_value();
  const auto add = [&](const std::string& name, double share, bool exact) {
    google::protobuf::Struct& one = *list.add_values()->mutable_struct_value();
    Put(one, "policy", name);
    Put(one, "share", share);
    (*one.mutable_fields())["exact"].set_bool_value(exact);
  };
  std::set<std::pair<RankedReplay::Priority, bool>> seen;
  for (const RankedReplay& replay : a.ranked) {
    if (seen.emplace(replay.priority, replay.rank_first).second)
      add(replay.Describe(), replay.share, replay.exact);
  }
  add("first come first served in time order", a.queue_share, a.first_come.best.fits);
}

double BinaryEntropy(double p) {
  return p <= 0 || p >= 1 ? 0 : -p * std::log2(p) - (1 - p) * std::log2(1 - p);
}

}  // namespace

double LeakBits(const RoutingAnalysis& a) {
  if (a.policy == "token-choice" || a.cause == "first-come") return 0;
  const bool columns = a.policy == "expert-choice";
  const bool known = columns || a.policy == "score-capacity" || a.policy == "sequence-top-k" ||
                     a.policy == "random-capacity" || a.policy == "rank-major-capacity" ||
                     a.policy == "fifo-capacity";
  if (!known || a.c.sequence.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::unordered_map<int64_t, int64_t> lengths;
  int64_t longest = 0;
  for (int32_t t = 0; t < a.c.tokens; ++t) {
    if (a.c.judged(t)) longest = std::max(longest, ++lengths[a.c.sequence[static_cast<size_t>(t)]]);
  }
  const auto experts = static_cast<double>(a.c.experts);
  const auto capacity = static_cast<double>(columns ? a.column.capacity : a.saturation.capacity);
  const double half = std::floor(static_cast<double>(longest) / 2);
  const double bits = experts * std::log2(std::min(capacity, half) + 1);
  if (a.policy == "rank-major-capacity") return bits * (a.c.top_k - 1);
  const auto pool =
      static_cast<double>(*std::max_element(a.c.pool_rows.begin(), a.c.pool_rows.end()));
  return std::min(bits, static_cast<double>(longest) * experts * BinaryEntropy(capacity / pool));
}

google::protobuf::Struct RoutingAnalysis::Details() const {
  google::protobuf::Struct s;
  Put(s, "policy", policy);
  Put(s, "explained_share", explained_share);
  Put(s, "inversions", static_cast<double>(inversions.inversions));
  Put(s, "cross_sequence_inversions", static_cast<double>(inversions.cross_sequence));
  Put(s, "saturated_experts", static_cast<double>(saturation.full_experts));
  Put(s, "tied_share", c.tied_share());
  Put(s, "flatten_order", flatten_order);
  if (std::isnan(leak_bits)) {
    (*s.mutable_fields())["leak_bits"].set_null_value(google::protobuf::NULL_VALUE);
  } else {
    Put(s, "leak_bits", leak_bits);
  }
  if (!blocked.empty()) return s;
  Put(s, "tokens", static_cast<double>(c.judged_rows));
  Put(s, "dropped", static_cast<double>(c.dropped));
  Put(s, "non_finite_rows", static_cast<double>(c.non_finite));
  if (columns()) Put(s, "score_key", column.variant);
  if (const RankedReplay* replay = leak(); replay != nullptr && policy == "score-capacity") {
    Put(s, "score_key", KeyName(replay->key));
  }
  if (cause == "first-come") Put(s, "queue", first_come.best.how);
  if (!assumptions.empty()) {
    auto& list = *(*s.mutable_fields())["assumptions"].mutable_list_value();
    for (const std::string& assumption : assumptions)
      list.add_values()->set_string_value(assumption);
  }
  if (flatten_contradicts)
    Put(s, "flatten_warning", "the recorded flatten order has inversions, this one has none");
  return s;
}

google::protobuf::Struct Witness(const RoutingAnalysis& a, const RefusalPair& pair) {
  google::protobuf::Struct s;
  if (!pair.found()) return s;
  // The score that the refusals follow, if there is one, because the user wants to compare it.
  KeyKind key = KeyKind::kRecorded;
  if (a.columns()) {
    key = a.column.key;
  } else if (a.leak() != nullptr && a.leak()->by_score()) {
    key = a.leak()->key;
  }
  const double refused = KeyValue(a.c, key, pair.refused, pair.expert, pair.rank);
  const double admitted = KeyValue(a.c, key, pair.admitted, pair.expert, pair.rank);
  Put(s, "text",
      absl::StrCat(TokenText(a.c, pair.refused, refused), ", lost expert ", pair.expert, " to ",
                   TokenText(a.c, pair.admitted, admitted)));
  Put(s, "score_key", KeyName(key));
  Put(s, "expert", pair.expert);
  Put(s, "pool", a.c.pool[static_cast<size_t>(pair.refused)]);
  Put(s, "capacity", static_cast<double>(a.columns() ? a.column.capacity : a.saturation.capacity));
  PutToken(PutStruct(s, "refused"), a.c, pair.refused, refused);
  PutToken(PutStruct(s, "admitted"), a.c, pair.admitted, admitted);
  if (a.c.ordered()) PutQueue(PutStruct(s, "queue"), a.c, pair, key);
  if (a.leak() != nullptr) PutPolicies(s, a);
  return s;
}

}  // namespace plumbline::analysis
