// Hands the points of a followed audit to a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "audit/follow/followed_audit.h"
#include "audit/live/evidence_sender.h"

namespace plumbline::audit {

// What the server has no room for or does not answer to stays with the audit, which keeps all
// points anyway, and follows later. Not thread-safe.
class PointSender {
 public:
  // Asks the server once what it holds of runs that go on: that is not sent again.
  explicit PointSender(std::string server);

  // Hands on what is new and whole; `all`: whole or not. True: nothing is left.
  bool Send(FollowedAudit& audit, bool all);
  // The files are at their end: what is left, and a goodbye. As EvidenceSender::Finish.
  bool Finish(FollowedAudit& audit, std::chrono::milliseconds patience);
  // The server will never take it: Left says why.
  bool hopeless() const { return !sender_.hopeless().empty(); }
  // What is to be said of it in the end; empty: the server has all of it.
  std::string Left() const;

 private:
  PointCursor& CursorOf(const FollowedPoints* points);

  const std::string server_;
  EvidenceSender sender_;
  std::map<std::string, std::pair<uint32_t, int64_t>>
      held_;  // by the server: attempt, step; by run
  std::map<const FollowedPoints*, std::unique_ptr<PointCursor>> cursors_;
  bool all_given_ = false;
};

}  // namespace plumbline::audit
