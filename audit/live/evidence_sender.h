// Sends batches to a plumbd as an agent would: numbered, kept until acknowledged, and sent again
// after a broken connection. If a server does not accept them, prints the reason to standard error,
// once for each cause.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// Not thread-safe. All calls must come from one thread.
class EvidenceSender {
 public:
  // `server` is HOST:PORT. The first Push starts the connection, which announces the sources of
  // that batch.
  explicit EvidenceSender(std::string server);
  ~EvidenceSender();
  EvidenceSender(const EvidenceSender&) = delete;
  EvidenceSender& operator=(const EvidenceSender&) = delete;

  // Returns true if another batch can be queued. The caller keeps batches that it does not push.
  bool room() const;
  // Queues a batch of any stream. Its series sets are distinguished by that stream's id.
  void Push(v1::Batch batch);
  uint64_t waiting() const;  // unacknowledged batches
  uint64_t refused() const;  // batches that the server rejected and counts as lost
  bool connected() const;    // true if a server ever accepted the connection
  // Returns the reason why the server will never accept these batches from any client (a name that
  // is too long); "" if it may.
  std::string hopeless() const;

  // Ends the input. Waits until all batches are acknowledged, as long as `patience` does not pass
  // without an acknowledgement and `hopeless` is empty. Returns true if the server has everything.
  bool Finish(std::chrono::milliseconds patience);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline::audit
