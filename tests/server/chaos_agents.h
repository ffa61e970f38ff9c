// Agents that send in any order, more than once, and break off; and what must become of it.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

// Which version of the protocol an agent speaks. The oldest knows no columns and no backlog; a
// newer one says in every message what this server has never heard of.
enum class Age { kOldest, kOwn, kNewer };

// One stream and all that it will ever send. Remembers what was acknowledged.
class ChaosAgent {
 public:
  // Batches of `steps` steps of `source`, then a goodbye.
  ChaosAgent(uint64_t stream_id, const v1::Source& source, int64_t steps, unsigned seed, Age age);

  // Connects when it is not, sends a few batches that are not acknowledged yet, some twice, some
  // out of order. Does not wait.
  void Act(const Plumbd& server);
  // Breaks off, as a killed process.
  void Break();
  void NoteAcknowledged();

  uint64_t stream_id() const { return stream_id_; }
  uint64_t acknowledged() const { return acknowledged_; }
  bool done() const { return acknowledged_ == batches_.size(); }
  const v1::Batch& batch(uint64_t sequence) const { return batches_[sequence - 1]; }
  size_t size() const { return batches_.size(); }
  // A welcome that forgot an acknowledgement; empty: none did.
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

// fingerprint -> level, measured value, count: what must not depend on what happened to the server.
using Findings = std::map<std::string, std::tuple<int, double, uint64_t>>;

// What an uninterrupted engine finds in the journal's entries and events, in their order.
Findings FindingsOfJournal(const std::string& directory);
Findings FindingsOf(const Plumbd& server);

// stream -> sequence -> the batches that the journal holds under this number.
std::map<uint64_t, std::map<uint64_t, std::vector<std::string>>> BatchesOfJournal(
    const std::string& directory);

}  // namespace plumbline::test
