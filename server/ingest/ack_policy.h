// Decides when to acknowledge: after a number of batches, or at once if the sender waits. (The
// caller has the clock: a timer sends acknowledgements that were held back too long.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "plumbline/v1/ingest.pb.h"

namespace plumbline::server {

// Not thread-safe.
class AckPolicy {
 public:
  explicit AckPolicy(uint64_t every) : every_(every) {}

  // Records that everything up to `sequence` is held.
  void Held(uint64_t sequence) {
    sequence_ = sequence;
    ++batches_;
  }
  void Refused(uint64_t sequence, std::string reason) {
    v1::Rejected* rejected = ack_.add_rejected();
    rejected->set_sequence(sequence);
    rejected->set_reason(std::move(reason));
    urgent_ = true;
  }
  void Urgent() { urgent_ = true; }

  // Returns the number of refused batches in the next acknowledgement.
  size_t refused() const { return static_cast<size_t>(ack_.rejected_size()); }
  bool anything() const { return batches_ > 0 || urgent_; }
  bool due() const { return urgent_ || batches_ >= every_; }

  v1::Ack Take() {
    v1::Ack out = std::exchange(ack_, {});
    out.set_sequence(sequence_);
    batches_ = 0;
    urgent_ = false;
    return out;
  }

 private:
  uint64_t every_;
  uint64_t sequence_ = 0;
  uint64_t batches_ = 0;
  bool urgent_ = false;
  v1::Ack ack_;
};

}  // namespace plumbline::server
