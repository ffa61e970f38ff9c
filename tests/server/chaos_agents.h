// Agents that send in any order, more than once, and disconnect; and the expected results.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

// The version of an agent's protocol. The oldest has no columns and no backlog; a newer one sends
// unknown fields in every message.
enum class Age { kOldest, kOwn, kNewer };

// One stream with all batches that it will send. Records which were acknowledged.
class ChaosAgent {
 public:
  // Batches of `steps` steps of `source`, then a goodbye.
  ChaosAgent(uint64_t stream_id, const v1::Source& source, int64_t steps, unsigned seed, Age age);

  // Connects if needed, and sends a few batches that are not acknowledged yet, some twice, some out
  // of order. Does not wait.
  void Act(const Plumbd& server);
  // Disconnects, like a killed process.
  void Break();
  void NoteAcknowledged();

  uint64_t stream_id() const { return stream_id_; }
  uint64_t acknowledged() const { return acknowledged_; }
  bool done() const { return acknowledged_ == batches_.size(); }
  const v1::Batch& batch(uint64_t sequence) const { return batches_[sequence - 1]; }
  size_t size() const { return batches_.size(); }
  // Returns the error if a welcome had lost an acknowledgement; otherwise an empty text.
  const std::string& broken_promise() const { return broken_promise_; }

 private:
  void Connect(const Plumbd& server);
  void Send(uint64_t sequence);

  const uint64_t stream_id_;
  const v1::Source source_;
  const Age age_;
  std::vector<v1::Batch> batches_;
  std::mt19937 random_;
  std::unique_ptr<AgentStream> stream_;
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;
  std::string broken_promise_;
};

// fingerprint -> level, measured value, count: must not depend on the faults of the server.
using Findings = std::map<std::string, std::tuple<int, double, uint64_t>>;

// Returns the findings of an uninterrupted engine for the journal's entries and events, in their
// order.
Findings FindingsOfJournal(const std::string& directory);
// Returns those of one run, which is over after its batches.
Findings FindingsOfBatches(const std::vector<v1::Batch>& batches, const std::string& run);
Findings FindingsOf(const Plumbd& server, const std::string& run = "");

// stream -> sequence -> the batches that the journal holds under this number.
std::map<uint64_t, std::map<uint64_t, std::vector<std::string>>> BatchesOfJournal(
    const std::string& directory);

}  // namespace plumbline::test
