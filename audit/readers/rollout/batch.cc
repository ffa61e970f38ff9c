#include "audit/readers/rollout/batch.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "audit/readers/rollout/source.h"
#include "base/router/rule.h"

namespace plumbline::audit {
namespace {

using Column = RolloutColumn;

template <typename T>
void Append(T value, v1::Tensor* tensor) {
  tensor->mutable_data()->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void Grow(v1::DType dtype, int64_t rows, int64_t columns, v1::Tensor* tensor) {
  if (tensor->shape().empty()) {
    tensor->set_dtype(dtype);
    tensor->add_shape(0);
    if (columns > 0) tensor->add_shape(columns);
  }
  tensor->set_shape(0, tensor->shape(0) + rows);
}

// Returns, for each token, 1 if its routing is not judged: the loss mask excludes it, and a side
// has no routes of it (-1), as an engine has none of a cached prompt.
std::vector<uint8_t> WithoutRoutes(const RolloutColumns& columns, const SequenceShape& shape) {
  const ColumnValue& mask = At(columns, Column::kLossMask);
  std::vector<uint8_t> without(shape.tokens, 0);
  if (!mask.present || mask.flags.empty()) return without;
  for (const Column side : {Column::kRolloutRouting, Column::kTrainRouting}) {
    const ColumnValue& value = At(columns, side);
    // If a side is in another file, its rows would remain.
    if (!value.present || value.layers == 0) return std::vector<uint8_t>(shape.tokens, 0);
    const auto width = static_cast<size_t>(value.layers * value.choices);
    const size_t begin = shape.begin[static_cast<size_t>(side)];
    size_t row = static_cast<size_t>(std::count(
        value.flags.begin(), value.flags.begin() + static_cast<std::ptrdiff_t>(begin), uint8_t{1}));
    for (size_t token = 0; token < shape.tokens; ++token) {
      if (value.flags[begin + token] == 0) continue;
      const int64_t* chosen = value.integers.data() + row++ * width;
      const size_t at =
          mask.repeated ? 0 : shape.begin[static_cast<size_t>(Column::kLossMask)] + token;
      if (mask.flags[at] == 0 && std::find(chosen, chosen + width, -1) != chosen + width)
        without[token] = 1;
    }
  }
  return without;
}

}  // namespace

v1::Evidence& RolloutBatch::Item(int64_t step, v1::Role role, const std::string& layer,
                                 const char* op, int64_t choices) {
  const auto [found, fresh] =
      items_.try_emplace({step, role, layer, choices}, batch_->evidence_size());
  if (!fresh) return *batch_->mutable_evidence(found->second);
  v1::Evidence& item = *batch_->add_evidence();
  item.set_source(SourceIndex(role));
  item.mutable_site()->set_layer(layer);
  item.mutable_site()->set_op(op);
  item.set_step(step);
  item.set_call((*calls_)[{step, role, layer}]++);
  item.set_exercised(v1::EXERCISED_NO);
  return item;
}

uint64_t RolloutBatch::Add(int64_t step, const std::string& default_id,
                           const RolloutColumns& columns, const SequenceShape& shape) {
  const uint64_t before = bytes_;
  if (HasRollout(columns) || HasTrain(columns)) {
    v1::Evidence& item = Item(step, RoleOf(columns), kPolicyLayer, kLogprobsOp, 0);
    v1::Logprobs& logprobs = *item.mutable_logprobs();
    v1::LogprobsSequence& sequence = *logprobs.add_sequences();
    const uint64_t judged = FillSequence(columns, shape, default_id, &sequence);
    logprobs.set_sequences_seen(logprobs.sequences_seen() + 1);
    logprobs.set_tokens_seen(logprobs.tokens_seen() + shape.tokens);
    item.set_sample_size(item.sample_size() + judged);
    if (judged > 0) item.set_exercised(v1::EXERCISED_YES);
    bytes_ += sequence.ByteSizeLong();
  }
  const ColumnValue& id = At(columns, Column::kSequenceId);
  const int64_t sequence = SequenceNumber(id.present ? id.text : default_id);
  AddRouting(Column::kRolloutRouting, v1::ROLE_ROLLOUT, step, sequence, columns, shape);
  AddRouting(Column::kTrainRouting, v1::ROLE_TRAINER, step, sequence, columns, shape);
  return bytes_ - before;
}

void RolloutBatch::AddRouting(RolloutColumn column, v1::Role role, int64_t step, int64_t sequence,
                              const RolloutColumns& columns, const SequenceShape& shape) {
  const ColumnValue& value = At(columns, column);
  if (!value.present || value.layers == 0) return;
  const size_t begin = shape.begin[static_cast<size_t>(column)];
  const ColumnValue& positions = At(columns, Column::kPosition);
  const size_t position_begin = shape.begin[static_cast<size_t>(Column::kPosition)];
  const auto width = static_cast<size_t>(value.layers * value.choices);
  const auto k = static_cast<size_t>(value.choices);
  const std::vector<uint8_t> without = WithoutRoutes(columns, shape);
  int64_t rows = 0;
  for (size_t token = 0; token < shape.tokens; ++token)
    rows += value.flags[begin + token] != 0 && without[token] == 0 ? 1 : 0;
  for (int64_t layer = 0; layer < value.layers; ++layer) {
    v1::Evidence& item =
        Item(step, role, "layers." + std::to_string(layer), "routing", value.choices);
    v1::Routing& routing = *item.mutable_routing();
    routing.mutable_config()->set_top_k(static_cast<uint32_t>(value.choices));
    // The record does not state the number of experts, so sets the maximum: rules compare only the
    // choices.
    routing.mutable_config()->set_experts(kMaxExperts);
    v1::RoutingSample& sample = *routing.mutable_sample();
    Grow(v1::DTYPE_I16, rows, value.choices, sample.mutable_topk_indices());
    Grow(v1::DTYPE_I64, rows, 0, sample.mutable_sequence_id());
    Grow(v1::DTYPE_I64, rows, 0, sample.mutable_position());
    // Skips null rows, because they hold no integers.
    size_t row = static_cast<size_t>(std::count(
        value.flags.begin(), value.flags.begin() + static_cast<std::ptrdiff_t>(begin), uint8_t{1}));
    for (size_t token = 0; token < shape.tokens; ++token) {
      if (value.flags[begin + token] == 0) continue;
      const int64_t* chosen =
          value.integers.data() + row++ * width + static_cast<size_t>(layer) * k;
      if (without[token] != 0) continue;
      for (size_t j = 0; j < k; ++j)
        Append(static_cast<int16_t>(chosen[j]), sample.mutable_topk_indices());
      Append(sequence, sample.mutable_sequence_id());
      Append(positions.present ? positions.integers[position_begin + token]
                               : shape.first_position + static_cast<int64_t>(token),
             sample.mutable_position());
    }
    item.set_sample_size(item.sample_size() + static_cast<uint64_t>(rows));
    item.set_exercised(v1::EXERCISED_YES);
    bytes_ += static_cast<uint64_t>(rows) * (2 * k + 16);
  }
}

}  // namespace plumbline::audit
