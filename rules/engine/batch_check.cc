#include "rules/engine/batch_check.h"

#include "absl/strings/str_cat.h"

namespace plumbline::rules {
namespace {

// A world larger than any cluster is a lie that would cost memory.
constexpr uint32_t kMaxWorld = 1u << 17;

absl::Status CheckSource(const v1::Batch& batch, uint32_t index, const char* what) {
  if (index < static_cast<uint32_t>(batch.sources_size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected a source index below ",
                                                 batch.sources_size(), ", found ", index));
}

}  // namespace

absl::Status CheckBatch(const v1::Batch& batch) {
  for (const v1::Source& source : batch.sources()) {
    if (source.world_size() > kMaxWorld ||
        (source.world_size() > 0 && source.rank() >= source.world_size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("source: expected rank below world size (at most ", kMaxWorld,
                       "), found rank ", source.rank(), " of ", source.world_size()));
    }
  }
  for (const v1::Evidence& evidence : batch.evidence()) {
    if (auto status = CheckSource(batch, evidence.source(), "evidence"); !status.ok())
      return status;
    if (!evidence.has_site() || (evidence.site().layer().empty() && evidence.site().op().empty())) {
      return absl::InvalidArgumentError("evidence: expected a site with a layer or an op");
    }
    if (evidence.step() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("evidence: expected a step of at least 0, found ", evidence.step()));
    }
  }
  for (const v1::Progress& progress : batch.progress()) {
    if (auto status = CheckSource(batch, progress.source(), "progress"); !status.ok())
      return status;
  }
  for (const v1::Loss& loss : batch.losses()) {
    if (auto status = CheckSource(batch, loss.source(), "loss"); !status.ok()) return status;
  }
  for (const v1::SiteDeclaration& declaration : batch.declarations()) {
    if (auto status = CheckSource(batch, declaration.source(), "declaration"); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::rules
