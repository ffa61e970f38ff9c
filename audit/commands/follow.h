// plumb audit --follow and --send: reads files of scalars while they are written, and sends them to
// a server.
#pragma once

#include <string>

#include "audit/commands/follow_printer.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

struct FollowOptions {
  bool follow = false;  // until SIGINT or SIGTERM; otherwise reads existing files once
  std::string send;     // address of a plumbd; empty: none
  FollowPrinter::Format format = FollowPrinter::Format::kText;
  Selection selection;  // selects the findings that are printed as they come
  bool quiet = false;   // prints only problems to standard error
};

// Returns the audit of all read files. Sets `*unsent` if a server was named and did not get
// everything; then prints the reason to standard error. Returns InvalidArgument if rules or
// settings are wrong, or if what is to be sent holds no points.
absl::StatusOr<AuditResult> RunFollowed(const AuditOptions& options, const FollowOptions& follow,
                                        bool* unsent);

}  // namespace plumbline::audit
