// Sends the points of a followed audit to a server.
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

// Points that the server cannot take yet stay in the audit, which keeps all points anyway, and are
// sent later. Not thread-safe.
class PointSender {
 public:
  // Asks the server once which points it holds of runs that continue. These are not sent again.
  explicit PointSender(std::string server);

  // Sends new points of whole steps; if `all`, also of unfinished steps. Returns true if nothing is
  // left.
  bool Send(FollowedAudit& audit, bool all);
  // Call when the files are at their end. Sends the remaining points and a goodbye. See
  // EvidenceSender::Finish.
  bool Finish(FollowedAudit& audit, std::chrono::milliseconds patience);
  // Returns true if the server will never accept the points. Left returns the reason.
  bool hopeless() const { return !sender_.hopeless().empty(); }
  // Returns a message about points that the server does not have; "" if it has all.
  std::string Left() const;

 private:
  PointCursor& CursorOf(const FollowedPoints* points);

  const std::string server_;
  EvidenceSender sender_;
  std::map<std::string, std::pair<uint32_t, int64_t>>
      held_;  // the newest attempt and step that the server holds, by run
  std::map<const FollowedPoints*, std::unique_ptr<PointCursor>> cursors_;
  bool all_given_ = false;
};

}  // namespace plumbline::audit
