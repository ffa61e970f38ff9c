// The CUDA graphs that contain calls of one device: whether each still exists, and the device
// memory of its calls. When a graph, its copies and its instances are gone, the next graph reuses
// their memory. No memory is freed before the ring is freed, because freeing may wait for the
// device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "kernels/device/table.h"

namespace plumbline::probes {

// Device memory of captured calls.
struct GraphBlock {
  void* memory = nullptr;
  uint64_t bytes = 0;
  void* shared_on = nullptr;  // the stream whose calls use it one after another
  bool shared = false;
};

// One capture. Owned together with the device's library, which outlives the run.
class CapturedGraph {
 public:
  explicit CapturedGraph(uint64_t capture) : capture_(capture) {}
  bool gone() const { return gone_.load(std::memory_order_acquire); }

 private:
  friend class CapturedGraphs;
  const uint64_t capture_;
  std::atomic<bool> gone_{false};
  std::vector<GraphBlock> blocks_;  // guarded by CapturedGraphs::mutex_
};

class CapturedGraphs {
 public:
  CapturedGraphs(const DeviceTable* table, void* device) : table_(table), device_(device) {}

  // The following functions are thread-safe; errors are those of the table.

  // Returns the graph that `stream` is being captured into.
  DeviceStatus Of(void* stream, std::shared_ptr<CapturedGraph>* graph, DeviceError* error);
  // Returns memory of at least this number of bytes, for the graph's whole life.
  DeviceStatus Take(CapturedGraph* graph, uint64_t bytes, void** memory, DeviceError* error);
  // Returns memory that all calls captured on one stream share: their launches follow each other in
  // the graph, and a graph does not overlap itself. Graphs may overlap.
  DeviceStatus TakeShared(CapturedGraph* graph, uint64_t bytes, void* stream, void** memory,
                          DeviceError* error);
  // Takes back the memory of graphs that are gone.
  void Sweep();
  // Called when the run is over. Frees everything, or returns false and frees nothing if a graph
  // exists that might use the memory. May wait.
  bool Free();

 private:
  bool FromSpare(CapturedGraph* graph, GraphBlock* block) PLUMB_REQUIRES(mutex_);
  DeviceStatus TakeBlock(CapturedGraph* graph, GraphBlock block, void** memory, DeviceError* error);

  const DeviceTable* const table_;
  void* const device_;
  Mutex mutex_;  // never held during a call of the device
  std::vector<std::shared_ptr<CapturedGraph>> graphs_ PLUMB_GUARDED_BY(mutex_);
  std::vector<GraphBlock> spare_ PLUMB_GUARDED_BY(mutex_);
  std::vector<void*> all_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::probes
