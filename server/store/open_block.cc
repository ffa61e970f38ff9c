#include "server/store/open_block.h"

#include <algorithm>

namespace plumbline::server {
namespace {

constexpr size_t kBlockSteps = 64;
constexpr size_t kMostBlockSteps = 256;

SpanRow RowOf(const Span& span) {
  return {span.id,         span.run,       span.attempt, span.generation,   span.role,
          span.first_step, span.last_step, span.samples, span.sealed_entry, span.sealed_step};
}

}  // namespace

size_t BlockSteps(const ClosedStep& step) {
  size_t ranks = 1;
  for (const StepPart& part : step.parts) ranks = std::max(ranks, part.ranks.size());
  return std::clamp(kTileRanks * kBlockSteps / ranks, kBlockSteps, kMostBlockSteps);
}

std::optional<BlockJob> TakeBlock(Span* span, bool whole) {
  if (span->steps.size() == span->queued) return std::nullopt;
  if (!whole && span->flushed == span->steps.size()) return std::nullopt;
  BlockJob job;
  job.steps.assign(span->steps.begin() + static_cast<ptrdiff_t>(span->queued), span->steps.end());
  job.fresh_from = span->flushed - span->queued;
  job.whole = whole;
  const ClosedStep& last = *span->steps.back();
  span->sealed = true;
  span->sealed_entry = last.entry;
  span->sealed_step = last.step;
  job.span = RowOf(*span);
  span->flushed = span->steps.size();
  if (whole) {
    span->queued = span->steps.size();
    span->block_bytes = 0;
  }
  return job;
}

void BlockWritten(const BlockJob& job, Span* span) {
  if (!job.whole) return;
  const size_t count = job.steps.size();
  span->steps.erase(span->steps.begin(), span->steps.begin() + static_cast<ptrdiff_t>(count));
  span->queued -= count;
  span->flushed -= count;
}

}  // namespace plumbline::server
