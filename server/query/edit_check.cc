// Checks an edit of a run (WhoOf, CheckEditOf in query_service.h).
#include "absl/strings/str_cat.h"
#include "server/query/query_service.h"

namespace plumbline::server {

std::string WhoOf(const Lease& lease, const std::string& who) {
  const std::string entry = lease.Names();
  return entry.empty() ? who : absl::StrCat(who, " (", entry, ")");
}

absl::Status CheckEditOf(const Judge& judge, const v1::RunEdit& edit) {
  if (auto s = CheckEdit(edit); !s.ok()) return s;
  for (const v1::RunInfo& info : judge.Runs()) {
    if (info.run() != edit.run()) continue;
    if (edit.deleted() && info.ranks_connected() > 0) {
      return absl::FailedPreconditionError(absl::StrCat("delete: expected a run that is over; ",
                                                        info.ranks_connected(),
                                                        " ranks of it are connected"));
    }
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("run \"", edit.run(), "\" is not known"));
}

}  // namespace plumbline::server
