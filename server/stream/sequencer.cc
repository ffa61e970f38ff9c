#include "server/stream/sequencer.h"

#include <utility>

namespace plumbline::server {

Sequencer::Offer Sequencer::Take(uint64_t sequence, ParsedBatch batch,
                                 std::vector<ParsedBatch>* ready) {
  if (sequence <= contiguous_ || waiting_.contains(sequence)) return Offer::kDuplicate;
  if (sequence != contiguous_ + 1) {
    if (waiting_.size() >= limits_.waiting_batches ||
        bytes_.bytes() + batch.bytes > limits_.waiting_bytes || !bytes_.Take(batch.bytes).ok()) {
      return Offer::kOverflow;
    }
    waiting_.emplace(sequence, std::move(batch));
    return Offer::kWaits;
  }
  contiguous_ = sequence;
  ready->push_back(std::move(batch));
  Release(ready);
  return Offer::kInOrder;
}

uint64_t Sequencer::SkipTo(uint64_t next, std::vector<ParsedBatch>* ready) {
  if (next <= contiguous_ + 1) return 0;
  uint64_t skipped = next - 1 - contiguous_;
  // Batches that wait below `next` did arrive.
  while (!waiting_.empty() && waiting_.begin()->first < next) {
    auto node = waiting_.extract(waiting_.begin());
    bytes_.Give(node.mapped().bytes);
    ready->push_back(std::move(node.mapped()));
    --skipped;
  }
  contiguous_ = next - 1;
  Release(ready);
  return skipped;
}

void Sequencer::Release(std::vector<ParsedBatch>* ready) {
  while (!waiting_.empty() && waiting_.begin()->first == contiguous_ + 1) {
    auto node = waiting_.extract(waiting_.begin());
    bytes_.Give(node.mapped().bytes);
    contiguous_ = node.key();
    ready->push_back(std::move(node.mapped()));
  }
}

}  // namespace plumbline::server
