#include "tests/rules/support/routing_parts.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace plumbline::rules::testing {
namespace {

// Keeps rows [from, to) of a tensor.
void CutRows(v1::Tensor* tensor, int64_t from, int64_t to) {
  if (tensor->shape_size() == 0) return;
  const size_t row = tensor->data().size() / static_cast<size_t>(tensor->shape(0));
  *tensor->mutable_data() =
      tensor->data().substr(static_cast<size_t>(from) * row, static_cast<size_t>(to - from) * row);
  tensor->set_shape(0, to - from);
}

// Numbers sequence ids from 0, as a rank with its own numbers does.
void NumberOwnSequences(v1::Tensor* ids) {
  std::map<int64_t, int64_t> dense;
  std::string& data = *ids->mutable_data();
  for (size_t at = 0; at < data.size(); at += sizeof(int64_t)) {
    int64_t id = 0;
    std::memcpy(&id, &data[at], sizeof id);
    id = dense.try_emplace(id, static_cast<int64_t>(dense.size())).first->second;
    std::memcpy(&data[at], &id, sizeof id);
  }
}

}  // namespace

std::vector<v1::Batch> PartsOf(const SyntheticRouting& whole, const Split& split) {
  std::vector<v1::Batch> parts;
  const v1::Evidence evidence = whole.Evidence();
  const int64_t rows = evidence.routing().sample().scores().shape(0);
  for (uint32_t rank = 0; rank < split.ranks; ++rank) {
    if (std::count(split.absent.begin(), split.absent.end(), rank)) continue;
    v1::Batch batch = whole.Batch(rank, split.world);
    v1::Routing& routing = *batch.mutable_evidence(0)->mutable_routing();
    routing.mutable_config()->set_pool(split.pool);
    v1::RoutingSample& s = *routing.mutable_sample();
    const int64_t from = rows * rank / split.ranks, to = rows * (rank + 1) / split.ranks;
    for (v1::Tensor* tensor : {s.mutable_scores(), s.mutable_sequence_id(), s.mutable_position()}) {
      CutRows(tensor, from, to);
    }
    if (s.has_topk_indices()) CutRows(s.mutable_topk_indices(), from, to);
    if (s.has_keep_mask()) CutRows(s.mutable_keep_mask(), from, to);
    if (s.has_pool_id()) CutRows(s.mutable_pool_id(), from, to);
    if (!split.keep_pool_id) s.clear_pool_id();
    if (split.own_numbers) NumberOwnSequences(s.mutable_sequence_id());
    parts.push_back(std::move(batch));
  }
  return parts;
}

}  // namespace plumbline::rules::testing
