#include "audit/live/known_run.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostNamed = 5;

std::string Named(const v1::ListRunsResponse& runs) {
  std::vector<const v1::RunInfo*> newest;
  for (const v1::RunInfo& run : runs.runs()) newest.push_back(&run);
  std::stable_sort(newest.begin(), newest.end(), [](const auto* a, const auto* b) {
    return a->first_seen_unix_ns() > b->first_seen_unix_ns();
  });
  std::string names;
  for (size_t i = 0; i < newest.size() && i < kMostNamed; ++i) {
    const std::string& name = newest[i]->run();
    absl::StrAppend(&names, i == 0 ? "" : ", ", name.empty() ? "(unnamed)" : name);
  }
  if (newest.size() > kMostNamed) absl::StrAppend(&names, ", …");
  return names.empty() ? "none" : names;
}

}  // namespace

absl::Status CheckRunKnown(const std::string& run, const std::string& server,
                           const v1::ListRunsResponse& runs) {
  const bool known = std::any_of(runs.runs().begin(), runs.runs().end(),
                                 [&run](const v1::RunInfo& info) { return info.run() == run; });
  if (known) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("no run \"", run, "\" on ", server, " (known: ", Named(runs), ")"));
}

absl::Status QueryIfRunKnown(Client& client, const std::string& run, const std::string& server,
                             double timeout_seconds) {
  if (run.empty()) return absl::OkStatus();
  const auto runs = client.Runs(timeout_seconds);
  return runs.ok() ? CheckRunKnown(run, server, *runs) : runs.status();
}

}  // namespace plumbline::audit
