#include "server/ingest/sequencer.h"

#include <utility>

namespace plumbline::server {
namespace {

size_t BytesOf(const std::optional<ParsedBatch>& batch) { return batch ? batch->bytes : 0; }

}  // namespace

Sequencer::Offer Sequencer::Take(uint64_t sequence, std::optional<ParsedBatch> batch,
                                 std::vector<ParsedBatch>* ready) {
  if (sequence <= contiguous_ || waiting_.contains(sequence)) return Offer::kDuplicate;
  if (sequence != contiguous_ + 1) {
    const size_t bytes = BytesOf(batch);
    if (waiting_.size() >= limits_.waiting_batches ||
        waiting_bytes_ + bytes > limits_.waiting_bytes) {
      return Offer::kOverflow;
    }
    waiting_bytes_ += bytes;
    waiting_.emplace(sequence, std::move(batch));
    return Offer::kWaits;
  }
  contiguous_ = sequence;
  if (batch) ready->push_back(std::move(*batch));
  Release(ready);
  return Offer::kInOrder;
}

uint64_t Sequencer::SkipTo(uint64_t next, std::vector<ParsedBatch>* ready) {
  if (next <= contiguous_ + 1) return 0;
  uint64_t skipped = next - 1 - contiguous_;
  // What waits below `next` did arrive.
  while (!waiting_.empty() && waiting_.begin()->first < next) {
    auto node = waiting_.extract(waiting_.begin());
    waiting_bytes_ -= BytesOf(node.mapped());
    if (node.mapped()) ready->push_back(std::move(*node.mapped()));
    --skipped;
  }
  contiguous_ = next - 1;
  Release(ready);
  return skipped;
}

void Sequencer::Release(std::vector<ParsedBatch>* ready) {
  while (!waiting_.empty() && waiting_.begin()->first == contiguous_ + 1) {
    auto node = waiting_.extract(waiting_.begin());
    waiting_bytes_ -= BytesOf(node.mapped());
    contiguous_ = node.key();
    if (node.mapped()) ready->push_back(std::move(*node.mapped()));
  }
}

}  // namespace plumbline::server
