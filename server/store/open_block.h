// The open block of a span: when it is full, and what of it goes to the writer.
#pragma once

#include <cstddef>
#include <optional>

#include "server/store/catalogue.h"
#include "server/store/store_writer.h"

namespace plumbline::server {

// So many steps make a block: enough that a tile of few ranks is worth its row.
size_t BlockSteps(const ClosedStep& step);

// The open block, whole, or, as short tiles, what of it was not handed over yet. Nothing: there is
// nothing to hand over. The span knows from then on that it was.
std::optional<BlockJob> TakeBlock(Span* span, bool whole);

// Blocks are written in their order, so the job's steps are the first of the span in memory: those
// of a whole block go.
void BlockWritten(const BlockJob& job, Span* span);

}  // namespace plumbline::server
