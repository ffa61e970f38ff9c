#include "audit/readers/checkpoint/reader.h"

#include <utility>

#include "audit/readers/checkpoint/contents.h"
#include "audit/readers/checkpoint/plan.h"
#include "audit/readers/checkpoint/source.h"

namespace plumbline::audit {

bool CheckpointReader::Recognise(std::string_view path, std::string_view head) const {
  return FormOf(path, head) != CheckpointForm::kNone;
}

std::vector<std::unique_ptr<Source>> CheckpointReader::Open(
    const std::vector<InputReport*>& files) const {
  return OpenWith(files, {});
}

std::vector<std::unique_ptr<Source>> CheckpointReader::OpenWith(
    const std::vector<InputReport*>& files, const ReaderOptions& options) const {
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<PlannedFile> plans = PlanCheckpoints(files);
  if (options.since) plans = PlansSince(std::move(plans), *options.since);
  if (!plans.empty()) sources.push_back(OpenCheckpoints(std::move(plans), options.block_fits));
  return sources;
}

}  // namespace plumbline::audit
