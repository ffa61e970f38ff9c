#include "probes/device/captured_graphs.h"

#include <algorithm>
#include <utility>

namespace plumbline::probes {
namespace {

constexpr uint64_t kBlock = 256;  // sizes are rounded up to this
constexpr uint64_t kWaste = 4;    // a spare block may be at most this many times larger than
                                  // requested

}  // namespace

DeviceStatus CapturedGraphs::Of(void* stream, std::shared_ptr<CapturedGraph>* graph,
                                DeviceError* error) {
  uint64_t capture = 0;
  if (const DeviceStatus s = table_->capture_id(device_, stream, &capture, error); s != kDeviceOk)
    return s;
  {
    const MutexLock lock(mutex_);
    for (const auto& known : graphs_) {
      if (known->capture_ != capture) continue;
      *graph = known;
      return kDeviceOk;
    }
  }
  *graph = std::make_shared<CapturedGraph>(capture);
  // The library's reference, until it reports that the graph is gone; kept even if it cannot watch
  // the graph.
  using Share = std::shared_ptr<CapturedGraph>;
  const auto gone = [](void* share) {
    auto* ended = static_cast<Share*>(share);
    (*ended)->gone_.store(true, std::memory_order_release);
    delete ended;
  };
  const DeviceStatus s = table_->watch_graph(device_, stream, gone, new Share(*graph), error);
  if (s != kDeviceOk) return s;
  const MutexLock lock(mutex_);
  graphs_.push_back(*graph);
  return s;
}

// Takes the smallest spare block that is large enough and not much too large.
bool CapturedGraphs::FromSpare(CapturedGraph* graph, GraphBlock* block) {
  auto best = spare_.end();
  for (auto at = spare_.begin(); at != spare_.end(); ++at) {
    const bool fits = at->bytes >= block->bytes && at->bytes / kWaste <= block->bytes;
    if (fits && (best == spare_.end() || at->bytes < best->bytes)) best = at;
  }
  if (best == spare_.end()) return false;
  block->memory = best->memory;
  block->bytes = best->bytes;
  *best = spare_.back();
  spare_.pop_back();
  graph->blocks_.push_back(*block);
  return true;
}

DeviceStatus CapturedGraphs::TakeBlock(CapturedGraph* graph, GraphBlock block, void** memory,
                                       DeviceError* error) {
  block.bytes = (block.bytes + kBlock - 1) / kBlock * kBlock;
  {
    const MutexLock lock(mutex_);
    if (FromSpare(graph, &block)) {
      *memory = block.memory;
      return kDeviceOk;
    }
  }
  const DeviceStatus s = table_->allocate(device_, block.bytes, &block.memory, error);
  if (s != kDeviceOk) return s;
  const MutexLock lock(mutex_);
  all_.push_back(block.memory);
  graph->blocks_.push_back(block);
  *memory = block.memory;
  return s;
}

DeviceStatus CapturedGraphs::Take(CapturedGraph* graph, uint64_t bytes, void** memory,
                                  DeviceError* error) {
  return TakeBlock(graph, {nullptr, bytes, nullptr, false}, memory, error);
}

DeviceStatus CapturedGraphs::TakeShared(CapturedGraph* graph, uint64_t bytes, void* stream,
                                        void** memory, DeviceError* error) {
  {
    const MutexLock lock(mutex_);
    for (const GraphBlock& b : graph->blocks_) {
      if (!b.shared || b.shared_on != stream || b.bytes < bytes) continue;
      *memory = b.memory;
      return kDeviceOk;
    }
  }
  return TakeBlock(graph, {nullptr, bytes, stream, true}, memory, error);
}

void CapturedGraphs::Sweep() {
  const MutexLock lock(mutex_);
  std::erase_if(graphs_, [&](const auto& graph) PLUMB_REQUIRES(mutex_) {
    if (!graph->gone()) return false;
    spare_.insert(spare_.end(), graph->blocks_.begin(), graph->blocks_.end());
    graph->blocks_.clear();
    return true;
  });
}

bool CapturedGraphs::Free() {
  Sweep();
  std::vector<void*> freed;
  {
    const MutexLock lock(mutex_);
    if (!graphs_.empty()) return false;
    freed = std::exchange(all_, {});
    spare_.clear();
  }
  for (void* memory : freed) table_->free_memory(device_, memory);
  return true;
}

}  // namespace plumbline::probes
