#include "probes.h"

#include <cstdint>

namespace moe {
namespace {

// Describes a dense host tensor of the trainer for the duration of a call.
class View {
 public:
  View(const void* data, uint8_t code, uint8_t bits, int64_t rows, int64_t columns = 0)
      : shape_{rows, columns} {
    tensor_.data = const_cast<void*>(data);  // DLPack has no const; it is only read
    tensor_.device = {static_cast<decltype(DLDevice::device_type)>(PLUMBLINE_DL_CPU), 0};
    tensor_.ndim = columns > 0 ? 2 : 1;
    tensor_.dtype = {code, bits, 1};
    tensor_.shape = shape_;
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const DLTensor* get() const { return &tensor_; }

 private:
  int64_t shape_[2];
  DLTensor tensor_{};
};

}  // namespace

Probes::Probes(const std::string& run, const std::string& server, const std::string& record,
               int layers)
    : run_({.run = run, .server = server, .record = record}) {
  for (int n = 0; n < layers; ++n) {
    sites_.push_back(run_.RoutingSite("layers." + std::to_string(n)));
  }
}

void Probes::Observe(int layer, const Routing& routing, const Batch& batch) {
  const plumbline::Site& site = sites_[static_cast<size_t>(layer)];
  if (!site.Due()) return;
  const int64_t rows = routing.tokens;
  const View scores(routing.logits.data(), PLUMBLINE_DL_FLOAT, 32, rows, routing.experts);
  const View indices(routing.indices.data(), PLUMBLINE_DL_INT, 32, rows, routing.top_k);
  const View keep(routing.keep.data(), PLUMBLINE_DL_UINT, 8, rows, routing.top_k);
  const View sequence(batch.sequence_id.data(), PLUMBLINE_DL_INT, 32, rows);
  const View position(batch.position.data(), PLUMBLINE_DL_INT, 32, rows);
  const View pool(batch.pool_id.data(), PLUMBLINE_DL_INT, 32, rows);
  plumbline_routing_t call = PLUMBLINE_ROUTING_INIT;
  call.top_k = static_cast<uint32_t>(routing.top_k);
  call.scores = scores.get();
  call.scores_are_logits = 1;
  call.score_function = PLUMBLINE_SCORE_SOFTMAX;
  call.topk_indices = indices.get();
  call.keep_mask = keep.get();
  call.sequence_id = sequence.get();
  call.position = position.get();
  call.pool_id = pool.get();
  call.capacity_kind = routing.capacity > 0 ? PLUMBLINE_CAPACITY_DECLARED : PLUMBLINE_CAPACITY_NONE;
  call.capacity = static_cast<uint64_t>(routing.capacity);
  if (routing.capacity > 0) call.capacity_source = PLUMBLINE_CAPACITY_SOURCE_DECLARED;
  call.policy = routing.policy;
  call.pool = PLUMBLINE_POOL_MICROBATCH;
  call.flatten = PLUMBLINE_FLATTEN_BATCH_MAJOR;
  call.mode = "train";
  site.ObserveRouting(call);
}

bool Probes::Finish(uint32_t patience_ms) {
  const bool delivered = run_.handle() == nullptr || run_.Flush(patience_ms) >= 0;
  run_.Close(patience_ms);
  return delivered;
}

}  // namespace moe
