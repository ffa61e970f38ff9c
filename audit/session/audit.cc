#include "audit/session/audit.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "audit/session/inputs.h"
#include "audit/session/judgement.h"

namespace plumbline::audit {
namespace {

// Paths that lead nowhere, and nothing else: nobody recorded anything, so nothing is missing in it.
bool NothingThere(const std::deque<InputReport>& inputs) {
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [](const InputReport& in) {
    std::error_code error;
    return in.named && !std::filesystem::exists(in.path, error);
  });
}

}  // namespace

bool AuditResult::inputs_failed() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const InputReport& input) { return input.failed(); });
}

absl::StatusOr<AuditResult> RunAudit(const AuditOptions& options,
                                     const std::function<void(const AuditProgress&)>& on_progress) {
  auto judgement = Judgement::Create(options.engine, options.collect_series);
  if (!judgement.ok()) return judgement.status();
  Inputs inputs = FindInputs(options.paths, options.forced, options.mapped);
  std::vector<std::unique_ptr<Source>> sources;
  AuditProgress progress;
  for (const Inputs::Set& set : inputs.sets) {
    for (auto& source : set.reader->OpenWith(set.files, options.readers))
      sources.push_back(std::move(source));
  }
  for (const InputReport& report : inputs.reports) {
    if (report.format == "unknown" || report.failed()) continue;
    ++progress.files;
    progress.bytes += report.bytes;
  }
  (*judgement)->Read(std::move(sources), on_progress, progress);
  AuditResult result = (*judgement)->Finish(std::move(inputs.reports));
  result.nothing_there = NothingThere(result.inputs);
  return result;
}

}  // namespace plumbline::audit
