// What each address under /api/v1 says, as JSON. Each function takes what its caller may see.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/gate.h"
#include "server/http/web.h"
#include "server/query/query_service.h"
#include "server/web/finding_json.h"

namespace plumbline::server {

struct WebSources {
  QuerySources query;        // as the service of the same name
  std::string grpc_address;  // where trainers send, for people to copy
  bool keeps = false;        // outlives a restart
};

// Thread-safe. NotFound and PermissionDenied say in words what is wrong; what somebody may not see
// is not there.
class WebViews {
 public:
  using Params = std::vector<std::pair<std::string, std::string>>;

  // All pointers in `sources` must outlive it.
  explicit WebViews(WebSources sources) : sources_(std::move(sources)) {}
  const WebSources& sources() const { return sources_; }

  Json Server(const Lease& lease) const;

  // runs_view.cc
  Json Runs(const Lease& lease) const;
  absl::StatusOr<Json> Run(const Lease& lease, const std::string& run) const;
  // What was looked at, what came of it, and what was lost.
  absl::StatusOr<Json> Coverage(const Lease& lease, const std::string& run) const;

  // series_view.cc
  // Groups with how many series each has; of `group` (or what `filter` matches) the series too.
  absl::StatusOr<Json> Series(const Lease& lease, const std::string& run,
                              const Params& params) const;
  // At most `px` columns of one series, over all ranks: mean, min and max, what is not finite.
  absl::StatusOr<Json> Points(const Lease& lease, const std::string& run,
                              const Params& params) const;
  // The loss of the run, 120 columns; no "series": it reports none.
  absl::StatusOr<Json> Spark(const Lease& lease, const std::string& run) const;
  // Ranks by steps: a line of JSON, then a byte a cell, row by row (cells.h).
  absl::StatusOr<std::string> Cells(const Lease& lease, const std::string& run,
                                    const Params& params) const;

  // incident_view.cc
  Json Incidents(const Lease& lease, const Params& params) const;
  // `name`: as IncidentTable::Resolve.
  // What is held of an incident's capsule as a tar, and the file's name. NotFound;
  // FailedPrecondition: it is too large for one answer.
  absl::StatusOr<std::pair<std::string, std::string>> Capsule(const Lease& lease,
                                                              const std::string& name) const;
  absl::StatusOr<Json> Incident(const Lease& lease, const std::string& name) const;
  // `update` as the page sends it. Aborted: somebody else was faster.
  absl::StatusOr<Json> SetState(const Lease& lease, const std::string& name,
                                const std::string& update) const;

  // rule_view.cc
  Json Rules(const Lease& lease) const;
  absl::StatusOr<Json> Rule(const Lease& lease, const std::string& id) const;

 private:
  absl::Status CheckRun(const Lease& lease, const std::string& run) const;
  std::vector<v1::RunInfo> RunsSeen(const Lease& lease) const;
  std::vector<IncidentTable::Change> IncidentsSeen(const Lease& lease, const std::string& run,
                                                   const std::string& rule) const;
  // A silence ends at a step that the run is still to take. InvalidArgument.
  absl::Status CheckStep(const v1::IncidentUpdate& update, const std::string& run) const;
  absl::StatusOr<std::string> Resolve(const Lease& lease, const std::string& name) const;
  Json CapsuleJson(const std::string& fingerprint) const;
  Json HistoryJson(const std::string& fingerprint) const;
  absl::StatusOr<v1::QuerySeriesResponse> Reduced(const std::string& run, const std::string& series,
                                                  const Params& params, uint64_t columns) const;

  const WebSources sources_;
};

// The first value of a parameter; empty: it was not sent.
std::string ParamOf(const WebViews::Params& params, std::string_view name);
// Of a parameter that is a whole number; `otherwise` where it is none.
int64_t NumberOf(const WebViews::Params& params, std::string_view name, int64_t otherwise);

// All its ranks said that they are done.
bool Over(const v1::RunInfo& run);

// What hurts most comes first.
bool WorseThan(const IncidentTable::Change& a, const IncidentTable::Change& b);

}  // namespace plumbline::server
