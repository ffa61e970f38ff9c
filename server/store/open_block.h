// The open block of a span: decides when it is full, and which part goes to the writer.
#pragma once

#include <cstddef>
#include <optional>

#include "server/store/catalogue.h"
#include "server/store/store_writer.h"

namespace plumbline::server {

// Returns the number of steps of a block: enough that a tile of few ranks is worth its row.
size_t BlockSteps(const ClosedStep& step);

// Returns the open block, complete or, as short tiles, the part that was not passed on yet. If
// there is none, returns nothing. The span records that the block was passed on.
std::optional<BlockJob> TakeBlock(Span* span, bool whole);

// Removes the steps of a complete block from the span. Blocks are written in order, so the job's
// steps are the first of the span in memory.
void BlockWritten(const BlockJob& job, Span* span);

}  // namespace plumbline::server
