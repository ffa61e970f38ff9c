#include "rules/lib/routing_analysis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/lib/verdicts.h"

namespace plumbline::rules {
namespace {

void NameByCapacity(RoutingAnalysis& a) {
  // Whatever refuses here, it is not one capacity: a name would be a guess.
  if (!a.saturation.contradiction.empty()) {
    a.explained_share = a.c.explained_share();
    return;
  }
  const bool fifo = !a.queue.exact_orders.empty();
  if (fifo && !a.score.exact && !a.queue.rank_major_fits) {
    a.policy = "fifo-capacity";
    a.explained_share = a.queue.best.share;
  } else if (a.score.exact && !fifo) {
    a.policy = "score-capacity";
    a.explained_share = a.score.share;
  } else {
    a.explained_share = std::max(a.queue.best.share, a.score.share);
  }
}

// The flatten order is the one under which the queue shows no inversion; several: the metadata's.
void InferFlatten(RoutingAnalysis& a) {
  std::vector<std::string> fits;
  for (const std::string& order : a.queue.exact_orders) {
    if (order != "rows") fits.push_back(order);
  }
  const auto recorded = a.c.routing->config().flatten();
  const std::string stated = recorded == v1::RoutingConfig::FLATTEN_SEQ_MAJOR     ? "seq-major"
                             : recorded == v1::RoutingConfig::FLATTEN_BATCH_MAJOR ? "batch-major"
                                                                                  : "";
  if (std::find(fits.begin(), fits.end(), stated) != fits.end()) {
    a.flatten_order = stated;
  } else if (fits.size() == 1) {
    a.flatten_order = fits[0];
    a.flatten_contradicts = !stated.empty();
  }
}

double BinaryEntropy(double p) {
  return p <= 0 || p >= 1 ? 0 : -p * std::log2(p) - (1 - p) * std::log2(1 - p);
}

// Bits into a prefix of a sequence of length L from its suffix, at the worst cut n: every expert's
// count of admitted suffix tokens is one of min(C, n, L-n)+1 values. For expert choice the choice
// itself carries at most L E H2(C/T). Spec: leak size.
double LeakBits(const RoutingAnalysis& a) {
  if (a.policy == "token-choice" || a.policy == "fifo-capacity") return 0;
  const bool known = a.policy == "score-capacity" || a.policy == "expert-choice";
  if (!known || a.c.sequence.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::unordered_map<int64_t, int64_t> lengths;
  int64_t longest = 0;
  for (int32_t t = 0; t < a.c.tokens; ++t) {
    if (a.c.judged(t)) longest = std::max(longest, ++lengths[a.c.sequence[static_cast<size_t>(t)]]);
  }
  const auto experts = static_cast<double>(a.c.experts);
  const bool columns = a.policy == "expert-choice";
  const auto capacity = static_cast<double>(columns ? a.column.capacity : a.saturation.capacity);
  const double half = std::floor(static_cast<double>(longest) / 2);
  const double bits = experts * std::log2(std::min(capacity, half) + 1);
  if (!columns) return bits;
  const auto pool =
      static_cast<double>(*std::max_element(a.c.pool_rows.begin(), a.c.pool_rows.end()));
  return std::min(bits, static_cast<double>(longest) * experts * BinaryEntropy(capacity / pool));
}

void ListAssumptions(RoutingAnalysis& a) {
  const v1::RoutingConfig& config = a.c.routing->config();
  if (config.capacity_kind() == v1::RoutingConfig::CAPACITY_ABSENT && a.c.dropped == 0 &&
      !a.columns()) {
    a.assumptions.push_back(
        a.c.drops_recorded ? "no capacity is set: none was recorded and no choice was dropped"
                           : "no capacity is set: none was recorded, nor was what was dropped");
  }
  if (a.c.bias_matters && config.bias_captured() == v1::RoutingConfig::BIAS_CAPTURED_ABSENT) {
    a.assumptions.push_back("the expert bias was captured before this batch's scores existed");
  }
  if (a.c.pool_basis == PoolBasis::kMetadata) {
    a.assumptions.push_back("tokens compete for capacity as the metadata's pool says");
  }
  if (!a.c.group_score_used.empty() &&
      config.group_score() == v1::RoutingConfig::GROUP_SCORE_ABSENT) {
    a.assumptions.push_back("group score " + a.c.group_score_used +
                            " (not recorded; it explains more rows)");
  }
}

std::shared_ptr<const RoutingAnalysis> Analyse(const v1::Routing& routing) {
  auto a = std::make_shared<RoutingAnalysis>();
  auto decoded = DecodeRouting(routing);
  if (!decoded.ok()) {
    a->blocked = std::string(decoded.status().message());
    return a;
  }
  a->c = std::move(*decoded);
  a->saturation = FindSaturation(a->c);
  const bool refusals = a->c.dropped > 0 && !a->c.kept_outside_choice;
  if (a->c.kept_outside_choice) a->column = FindColumnChoice(a->c);
  if (refusals && a->c.ordered()) {
    a->inversions = FindInversions(a->c, a->saturation);
    a->queue = ReplayFirstCome(a->c, a->saturation);
    a->score = ReplayByScore(a->c, a->saturation);
    NameByCapacity(*a);
    InferFlatten(*a);
  } else if (a->columns()) {
    a->policy = "expert-choice";
    a->explained_share = 1;
    a->inversions.inversions = a->column.future_tokens;
    a->inversions.cross_sequence = a->column.cross_tokens;
  } else if (a->c.dropped == 0 && a->c.unexplained == 0 && a->c.explained > 0 &&
             !a->c.kept_outside_choice) {
    a->policy = "token-choice";
    a->explained_share = 1;
  } else {
    a->explained_share = a->c.explained_share();
  }
  using Basis = Saturation::Basis;
  // "No piece of a cut could do it" counts every holder; some are unknown, or pools are recorded.
  const bool all_counted = !a->c.holders_unknown || a->c.pool_basis == PoolBasis::kRecorded;
  if (a->saturation.basis == Basis::kDeclared && all_counted) a->capacity_bits = HUGE_VAL;
  if (a->saturation.basis == Basis::kExhibited && a->c.pool_basis == PoolBasis::kRecorded) {
    a->capacity_bits = a->saturation.bits;
  }
  a->leak_bits = LeakBits(*a);
  ListAssumptions(*a);
  return a;
}

std::string TokenText(const RoutingCase& c, int32_t token, double score) {
  const auto row = static_cast<size_t>(token);
  return absl::StrFormat("token %d (sequence %d, position %d), score %.6g", token, c.sequence[row],
                         c.position[row], score);
}

void PutToken(google::protobuf::Struct& s, const RoutingCase& c, int32_t token, double score) {
  const auto row = static_cast<size_t>(token);
  Put(s, "row", token);
  Put(s, "sequence", static_cast<double>(c.sequence[row]));
  Put(s, "position", static_cast<double>(c.position[row]));
  Put(s, "score", score);
}

}  // namespace

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
  if (!score.variant.empty() && policy == "score-capacity") Put(s, "score_key", score.variant);
  if (policy == "expert-choice") Put(s, "score_key", column.variant);
  if (!assumptions.empty()) {
    auto& list = *(*s.mutable_fields())["assumptions"].mutable_list_value();
    for (const std::string& assumption : assumptions)
      list.add_values()->set_string_value(assumption);
  }
  if (flatten_contradicts)
    Put(s, "flatten_warning", "the recorded flatten order shows inversions, this one none");
  return s;
}

std::vector<std::shared_ptr<const RoutingAnalysis>> AnalyseRouting(const SiteStep& step) {
  using List = std::vector<std::shared_ptr<const RoutingAnalysis>>;
  auto& slot = (*step.shared)["routing"];
  if (slot == nullptr) {
    auto list = std::make_shared<List>();
    for (const Item& item : step.items) {
      const bool sampled = item.evidence->has_routing() && item.evidence->routing().has_sample();
      list->push_back(sampled ? Analyse(item.evidence->routing()) : nullptr);
    }
    slot = list;
  }
  return *static_cast<const List*>(slot.get());
}

std::string BiasComplaint(const SiteStep& step, const RoutingCase& c) {
  if (!c.bias_matters) return "";
  if (c.routing->config().bias_captured() == v1::RoutingConfig::BIAS_CAPTURED_AFTER) {
    return "bias-captured-after: the expert bias was captured after this batch's scores existed; "
           "it may have been "
           "fitted on them";
  }
  const std::string& mine = c.routing->sample().expert_bias().data();
  for (const Item& item : step.items) {
    if (!item.evidence->routing().sample().has_expert_bias()) continue;
    if (item.evidence->routing().sample().expert_bias().data() == mine) continue;
    return absl::StrCat(
        "bias-differs: rank ", item.source->rank(), ", call ", item.evidence->call(),
        " of this step used another expert bias; a stored bias is the same for all");
  }
  return "";
}

google::protobuf::Struct Witness(const RoutingAnalysis& a, const RefusalPair& pair) {
  google::protobuf::Struct s;
  if (!pair.found()) return s;
  // The score that the refusals follow, if there is one: that is what a person wants to compare.
  const bool ranked = a.policy == "score-capacity" || a.columns();
  const KeyKind key = !ranked ? KeyKind::kRecorded : a.columns() ? a.column.key : a.score.key;
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
  return s;
}

}  // namespace plumbline::rules
