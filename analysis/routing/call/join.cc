#include "analysis/routing/call/join.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/load.h"

namespace plumbline::analysis {
namespace {

bool SpansRanks(const v1::Routing& routing) {
  const auto pool = routing.config().pool();
  return pool == v1::RoutingConfig::POOL_GROUP || pool == v1::RoutingConfig::POOL_WORLD;
}

bool Sampled(const Item& item) {
  return item.evidence->has_routing() && item.evidence->routing().has_sample();
}

// Returns ranks of the pool that sent no rows of this call. If there are many, returns some.
std::vector<uint32_t> Missing(const SiteStep& step, const std::set<uint32_t>& have) {
  std::set<uint32_t> missing(step.missing_ranks.begin(), step.missing_ranks.end());
  // If the world's size is not known, at least the ranks below the highest one exist.
  const uint32_t world = step.world_size > 0 ? step.world_size : *have.rbegin() + 1;
  for (uint32_t rank = 0; rank < world && missing.size() < SiteStep::kNamedMissing; ++rank) {
    if (!have.contains(rank)) missing.insert(rank);
  }
  return {missing.begin(), missing.end()};
}

std::string RankList(const std::vector<uint32_t>& ranks) {
  constexpr size_t kNamed = 16;
  const std::vector<uint32_t> named(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, ranks.size())));
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(named, ", "),
                      ranks.size() > kNamed ? ", ..." : "");
}

// Appends rows. If dtype or row shape differ, or if there are fewer bytes than rows, returns false.
bool Append(const v1::Tensor& from, v1::Tensor* to) {
  const int64_t rows = from.shape_size() > 0 ? from.shape(0) : 0;
  if (rows < 0 || static_cast<uint64_t>(rows) > from.data().size()) return false;
  if (to->shape_size() == 0) {
    *to = from;
    return from.shape_size() > 0;
  }
  const bool alike = from.dtype() == to->dtype() && from.shape_size() == to->shape_size() &&
                     std::equal(from.shape().begin() + 1, from.shape().end(),
                                to->shape().begin() + 1, to->shape().end());
  if (!alike) return false;
  to->set_shape(0, to->shape(0) + from.shape(0));
  to->mutable_data()->append(from.data());
  return true;
}

struct Field {
  const char* name;
  bool (v1::RoutingSample::*has)() const;
  const v1::Tensor& (v1::RoutingSample::*get)() const;
  v1::Tensor* (v1::RoutingSample::*edit)();
};
using Sample = v1::RoutingSample;
constexpr Field kRowFields[] = {
    {"scores", &Sample::has_scores, &Sample::scores, &Sample::mutable_scores},
    {"topk_indices", &Sample::has_topk_indices, &Sample::topk_indices,
     &Sample::mutable_topk_indices},
    {"keep_mask", &Sample::has_keep_mask, &Sample::keep_mask, &Sample::mutable_keep_mask},
    {"routing_map", &Sample::has_routing_map, &Sample::routing_map, &Sample::mutable_routing_map},
    {"probs", &Sample::has_probs, &Sample::probs, &Sample::mutable_probs},
    {"sequence_id", &Sample::has_sequence_id, &Sample::sequence_id, &Sample::mutable_sequence_id},
    {"sequence_order", &Sample::has_sequence_order, &Sample::sequence_order,
     &Sample::mutable_sequence_order},
    {"position", &Sample::has_position, &Sample::position, &Sample::mutable_position},
    {"padding_mask", &Sample::has_padding_mask, &Sample::padding_mask,
     &Sample::mutable_padding_mask},
    {"pool_id", &Sample::has_pool_id, &Sample::pool_id, &Sample::mutable_pool_id},
    {"region", &Sample::has_region, &Sample::region, &Sample::mutable_region},
};

int64_t IntegerAt(const v1::Tensor& tensor, int64_t i) {
  return LoadInt64(tensor.data().data(), static_cast<DType>(tensor.dtype()), i);
}

bool IsColumn(const v1::Tensor& tensor, int64_t rows) {
  const size_t size = DTypeSize(static_cast<DType>(tensor.dtype()));
  return size > 0 && !IsFloating(static_cast<DType>(tensor.dtype())) && tensor.shape_size() == 1 &&
         tensor.shape(0) == rows && tensor.data().size() == static_cast<size_t>(rows) * size;
}

// The rows of one sequence id on one rank.
struct Fragment {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = -1;
  int64_t rows = 0;
  bool whole() const { return first == 0 && rows == last + 1; }
};

// Numbers sequences by (rank, id) if some (id, position) occurs on two ranks. `ends` are the
// numbers of rows up to and including each rank. Returns false if ranks then hold parts of
// sequences, because ids that each rank numbers itself do not show which parts belong together.
bool SeparateSequences(const std::vector<int64_t>& ends, v1::RoutingSample* sample) {
  const int64_t rows = ends.back();
  if (!IsColumn(sample->sequence_id(), rows) || !IsColumn(sample->position(), rows)) return true;
  std::map<std::pair<int64_t, int64_t>, size_t> owner;  // (id, position) -> rank index
  std::map<std::pair<size_t, int64_t>, int64_t> dense;  // (rank index, id) -> number
  std::map<std::pair<size_t, int64_t>, Fragment> fragments;
  std::vector<int64_t> number(static_cast<size_t>(rows));
  bool shared = false;
  size_t rank = 0;
  for (int64_t row = 0; row < rows; ++row) {
    while (row >= ends[rank]) ++rank;
    const int64_t id = IntegerAt(sample->sequence_id(), row);
    const bool padding = sample->has_padding_mask() && IntegerAt(sample->padding_mask(), row) != 0;
    if (!padding) {
      const int64_t position = IntegerAt(sample->position(), row);
      const auto at = owner.try_emplace({id, position}, rank);
      shared |= !at.second && at.first->second != rank;
      Fragment& fragment = fragments[{rank, id}];
      fragment.first = std::min(fragment.first, position);
      fragment.last = std::max(fragment.last, position);
      ++fragment.rows;
    }
    number[static_cast<size_t>(row)] =
        dense.try_emplace({rank, id}, static_cast<int64_t>(dense.size())).first->second;
  }
  if (!shared) return true;
  for (const auto& [key, fragment] : fragments) {
    if (!fragment.whole()) return false;
  }
  v1::Tensor& ids = *sample->mutable_sequence_id();
  ids.set_dtype(v1::DTYPE_I64);
  ids.mutable_data()->resize(number.size() * sizeof(int64_t));
  std::memcpy(ids.mutable_data()->data(), number.data(), ids.data().size());
  sample->clear_sequence_order();  // not needed: the numbers are in order
  return true;
}

// Renumbers the orders, because each rank numbers its own sequences from 0. Numbers them
// consecutively. If several ranks hold a sequence, it gets the first one's number. This
// distinguishes sequences, but gives no order between ranks. If the order was not recorded
// correctly, returns false.
bool RenumberOrder(const std::vector<int64_t>& ends, v1::RoutingSample* sample) {
  const int64_t rows = ends.back();
  if (!IsColumn(sample->sequence_id(), rows) || !IsColumn(sample->sequence_order(), rows))
    return false;
  std::map<int64_t, int64_t> number;  // by sequence id
  std::vector<int64_t> order(static_cast<size_t>(rows));
  int64_t begin = 0;
  for (const int64_t end : ends) {
    std::map<int64_t, int64_t> ids;  // ids of the rank, by order
    for (int64_t row = begin; row < end; ++row)
      ids.emplace(IntegerAt(sample->sequence_order(), row), IntegerAt(sample->sequence_id(), row));
    for (const auto& [at, id] : ids) number.try_emplace(id, static_cast<int64_t>(number.size()));
    for (int64_t row = begin; row < end; ++row)
      order[static_cast<size_t>(row)] = number[IntegerAt(sample->sequence_id(), row)];
    begin = end;
  }
  v1::Tensor& numbers = *sample->mutable_sequence_order();
  numbers.set_dtype(v1::DTYPE_I64);
  numbers.mutable_data()->resize(order.size() * sizeof(int64_t));
  std::memcpy(numbers.mutable_data()->data(), order.data(), numbers.data().size());
  return true;
}

// Returns all rows of these items in rank order. If they do not fit together, returns null and sets
// a reason.
std::shared_ptr<v1::Routing> Join(const std::vector<const Item*>& items, uint32_t world,
                                  std::vector<int64_t>* rank_ends, std::string* blocked) {
  auto joined = std::make_shared<v1::Routing>();
  const v1::Routing& first = items[0]->evidence->routing();
  *joined->mutable_config() = first.config();
  v1::RoutingSample& sample = *joined->mutable_sample();
  sample.set_scores_are_logits(first.sample().scores_are_logits());
  if (first.sample().has_expert_bias())
    *sample.mutable_expert_bias() = first.sample().expert_bias();
  std::vector<int64_t>& ends = *rank_ends;
  for (const Item* item : items) {
    const v1::RoutingSample& rows = item->evidence->routing().sample();
    for (const Field& field : kRowFields) {
      const bool alike =
          (rows.*field.has)() == (first.sample().*field.has)() &&
          (!(rows.*field.has)() || Append((rows.*field.get)(), (sample.*field.edit)()));
      if (alike) continue;
      *blocked = absl::StrCat("ranks-differ: ", field.name, " of rank ", item->source->rank(),
                              " has a dtype or shape that differs from rank ",
                              items[0]->source->rank(), "; their pool cannot be joined");
      return nullptr;
    }
    ends.push_back(sample.scores().shape_size() > 0 ? sample.scores().shape(0) : 0);
  }
  if (sample.has_sequence_id() && sample.has_position() && !SeparateSequences(ends, &sample)) {
    *blocked =
        "sequence-ids-reused: ranks use the same sequence ids for different sequences; give every "
        "sequence an id that is unique over all ranks";
    return nullptr;
  }
  if (sample.has_sequence_order() && ends.size() > 1 && !RenumberOrder(ends, &sample)) {
    *blocked = "bad-tensor: sequence_id and sequence_order: expected one integer for each row";
    return nullptr;
  }
  // If the pool has all ranks, it is the joined rows.
  const bool everyone = first.config().pool() == v1::RoutingConfig::POOL_WORLD || world == 1;
  if (!sample.has_pool_id() && everyone) {
    joined->mutable_config()->set_pool(v1::RoutingConfig::POOL_MICROBATCH);
  }
  return joined;
}

void JoinCall(const SiteStep& step, const std::vector<size_t>& items,
              std::vector<RoutingCall>& calls) {
  std::set<uint32_t> have;
  std::vector<const Item*> sampled;
  for (size_t i : items) {
    if (!Sampled(step.items[i])) continue;
    sampled.push_back(&step.items[i]);
    have.insert(step.items[i].source->rank());
  }
  RoutingCall& call = calls[items[0]];
  call.ranks.assign(have.begin(), have.end());
  if (step.world_size == 0 && have.size() == 1) {
    call.blocked =
        "pool-spans-ranks: tokens of other ranks compete for this capacity and were not recorded";
    return;
  }
  const std::vector<uint32_t> missing = Missing(step, have);
  if (!missing.empty()) {
    call.blocked = absl::StrCat("missing-ranks: the pool spans ranks and ", RankList(missing),
                                " recorded no rows of this call");
    return;
  }
  if (step.world_size == 0) {
    call.assumptions.push_back("the recorded ranks are all ranks of the pool");
  }
  for (const Item* item : sampled) {
    if (item->evidence->redacted_key() == sampled[0]->evidence->redacted_key()) continue;
    call.blocked = absl::StrCat(
        "keys-differ: rank ", item->source->rank(), " and rank ", sampled[0]->source->rank(),
        " redacted their ids with different keys; set PLUMBLINE_REDACT_KEY on all ranks");
    return;
  }
  auto joined = Join(sampled, step.world_size, &call.rank_ends, &call.blocked);
  call.order_lost =
      joined != nullptr && sampled.size() > 1 && joined->sample().has_sequence_order();
  call.joined = joined;
  call.routing = joined.get();
}

}  // namespace

std::vector<RoutingCall> JoinRanks(const SiteStep& step) {
  std::vector<RoutingCall> calls(step.items.size());
  std::map<uint32_t, std::vector<size_t>> spanning;  // call -> items
  for (size_t i = 0; i < step.items.size(); ++i) {
    if (!Sampled(step.items[i])) continue;
    const v1::Routing& routing = step.items[i].evidence->routing();
    // A world of one rank is joined too: its call is the pool.
    if (SpansRanks(routing) && (step.world_size != 1 || !routing.sample().has_pool_id())) {
      spanning[step.items[i].evidence->call()].push_back(i);
    } else {
      calls[i].routing = &routing;
      calls[i].ranks = {step.items[i].source->rank()};
    }
  }
  for (const auto& [call, items] : spanning) JoinCall(step, items, calls);
  return calls;
}

}  // namespace plumbline::analysis
