// Compares what a checkpoint holds in addition to the tensors that are compared by name: states of
// schedulers, scalers and random generators, counters, texts, arguments.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "audit/checkpoints/equality.h"
#include "audit/checkpoints/names_map.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/side.h"

namespace plumbline::audit {

// Compares values of both sides by their place ("optimizer.param_groups.0.weight_decay"), rank by
// rank, for equal type and bits. Unnamed tensors and storages are read. Ignores the order of dicts
// and sets, the class of a dict, what hangs below a bound method, and attributes of plain
// containers. An object of unknown class is compared by its parts. If the numbers of ranks differ,
// compares the first ranks, and sets aside what other ranks hold differently. Places whose last
// part is in `told` are skipped. What the map leaves out goes to `left_out`.
absl::Status CompareValues(const CheckpointSide& a, const CheckpointSide& b, const NamesMap& names,
                           const std::set<std::string>& reported, PieceReader* reader,
                           LeftOut* left_out, Equality* out);

}  // namespace plumbline::audit
