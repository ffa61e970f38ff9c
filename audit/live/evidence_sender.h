// Hands batches to a plumbd as an agent would: numbered, kept until they are acknowledged, sent
// again after a break. Says on standard error, once for each cause, why a server does not take
// them.
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

// All calls from one thread.
class EvidenceSender {
 public:
  // Begins to dial. `sources`: processes it will speak for, as far as they are known; with none the
  // first batch says it, and dialling begins with it.
  explicit EvidenceSender(std::string server);
  ~EvidenceSender();
  EvidenceSender(const EvidenceSender&) = delete;
  EvidenceSender& operator=(const EvidenceSender&) = delete;

  // May another batch wait? What is not pushed is the caller's to keep.
  bool room() const;
  // `batch` may come of any stream: its series sets are told apart by that stream's id.
  void Push(v1::Batch batch);
  uint64_t waiting() const;  // batches that are not acknowledged
  uint64_t refused() const;  // batches that the server would not have: it counts them as lost
  bool connected() const;    // a server welcomed us, ever
  // Why the server will never take what is pushed, whoever sends it (a name that is too long);
  // empty: it may.
  std::string hopeless() const;

  // Nothing more comes. Waits until all is acknowledged, as long as something is acknowledged at
  // least once in `patience`, and there is hope. True: all is the server's.
  bool Finish(std::chrono::milliseconds patience);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline::audit
