// Sends a checkpoint from one process to another: converts its pieces to bytes, and back.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "server/journal/checkpoint_file.h"

namespace plumbline::server {

// Writes each piece with its lengths to `write`, at once.
class CheckpointSender : public CheckpointSink {
 public:
  explicit CheckpointSender(std::function<void(std::string_view)> write)
      : write_(std::move(write)) {}
  void Head(uint64_t entry, uint64_t event, int64_t unix_ns) override;
  void Part(std::string_view name, std::string_view bytes) override;

 private:
  const std::function<void(std::string_view)> write_;
};

// Takes those bytes, cut anywhere, and hands the pieces on. It holds one piece at a time.
class CheckpointReceiver {
 public:
  explicit CheckpointReceiver(CheckpointSink* sink) : sink_(sink) {}
  void Take(std::string_view bytes);
  // Returns whether all received pieces were complete.
  bool whole() const { return rest_.empty(); }

 private:
  CheckpointSink* const sink_;
  std::string rest_;  // a piece that is not whole yet
};

}  // namespace plumbline::server
