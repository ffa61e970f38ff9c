// plumb audit --follow and --send: files of scalars read on as they are written, and handed to a
// server.
#pragma once

#include <string>

#include "audit/commands/follow_printer.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

struct FollowOptions {
  bool follow = false;  // until SIGINT or SIGTERM; else what is there now is read once
  std::string send;     // address of a plumbd; empty: none
  FollowPrinter::Format format = FollowPrinter::Format::kText;
  Selection selection;  // of the findings that are printed as they come
  bool quiet = false;   // nothing on standard error but problems
};

// What an audit of all that was read says. `*unsent`: a server was named and does not have it all;
// standard error says why. InvalidArgument when rules or settings are wrong, or what is to be sent
// holds no points.
absl::StatusOr<AuditResult> RunFollowed(const AuditOptions& options, const FollowOptions& follow,
                                        bool* unsent);

}  // namespace plumbline::audit
