// The answers of the addresses under /api/v1, as JSON. Each function takes its caller's
// permissions.
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
  QuerySources query;        // as for the gRPC query service
  std::string grpc_address;  // for trainers; shown for people to copy
  bool keeps = false;        // data outlives a restart
};

// Thread-safe. NotFound and PermissionDenied have a message for people; data that a caller may not
// read is treated as missing.
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
  // Returns the checks, the results, and the losses.
  absl::StatusOr<Json> Coverage(const Lease& lease, const std::string& run) const;

  // Applies an edit of the run that the page sends (RunEdit as JSON). Returns its labels.
  absl::StatusOr<Json> EditRun(const Lease& lease, const std::string& run,
                               const std::string& edit) const;

  // series_view.cc
  // Returns groups with their number of series; for `group` (or if `filter` is given), the series
  // too.
  absl::StatusOr<Json> Series(const Lease& lease, const std::string& run,
                              const Params& params) const;
  // Returns at most `px` columns of one series, over all ranks: mean, min and max, and the
  // non-finite values.
  absl::StatusOr<Json> Points(const Lease& lease, const std::string& run,
                              const Params& params) const;
  // Returns the loss of the run, 120 columns; without "series" if it reports none.
  absl::StatusOr<Json> Spark(const Lease& lease, const std::string& run) const;
  // Returns ranks by steps: a line of JSON, then one byte per cell, row by row (cells.h).
  absl::StatusOr<std::string> Cells(const Lease& lease, const std::string& run,
                                    const Params& params) const;

  // ranks_view.cc
  // Returns the ranks of the run by host: what each last completed, and the mean of `series` in its
  // newest steps.
  absl::StatusOr<Json> Ranks(const Lease& lease, const std::string& run,
                             const Params& params) const;

  // incident_view.cc
  Json Incidents(const Lease& lease, const Params& params) const;
  // Returns the available parts of an incident's capsule as a tar, and the file's name. `name`: as
  // IncidentTable::Resolve. Returns NotFound, or FailedPrecondition if it is too large for one
  // answer.
  absl::StatusOr<std::pair<std::string, std::string>> Capsule(const Lease& lease,
                                                              const std::string& name) const;
  absl::StatusOr<Json> Incident(const Lease& lease, const std::string& name) const;
  // `update` as the page sends it. Returns Aborted if another change came first.
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
  // Returns InvalidArgument unless a silence ends at a step that the run has not reached.
  absl::Status CheckStep(const v1::IncidentUpdate& update, const std::string& run) const;
  absl::StatusOr<std::string> Resolve(const Lease& lease, const std::string& name) const;
  absl::Status Decide(const v1::IncidentUpdate& update) const;
  int SeriesOf(const std::string& run) const;
  // Returns true if the run has reported values of a GPU.
  bool HasGpus(const std::string& run) const;
  // `of_run`: the incidents of the run.
  Json LostJson(const IncidentTable::Change& change,
                const std::vector<IncidentTable::Change>& of_run, const v1::RunInfo* run) const;
  Json CapsuleJson(const std::string& fingerprint) const;
  Json HistoryJson(const std::string& fingerprint) const;
  absl::StatusOr<v1::QuerySeriesResponse> Reduced(const std::string& run, const std::string& series,
                                                  const Params& params, uint64_t columns) const;

  const WebSources sources_;
};

// Returns the first value of a parameter; empty if it was not sent.
std::string ParamOf(const WebViews::Params& params, std::string_view name);
// Returns a parameter that is a whole number; `otherwise` if it is not.
int64_t NumberOf(const WebViews::Params& params, std::string_view name, int64_t otherwise);

// Returns true if all of its ranks reported that they are done.
bool Over(const v1::RunInfo& run);

// Sorts the worst first.
bool WorseThan(const IncidentTable::Change& a, const IncidentTable::Change& b);

}  // namespace plumbline::server
